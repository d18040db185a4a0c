"""The macro language: `@#define`, `@#if`, `@#for`, `@#include` and `@{...}`, which make lines of
lines. Python's grammar reads the expressions.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .._fail import ModelError
from ._places import Line, Place, fail, text_of
from ._statements import without_comments

_DIRECTIVE = re.compile(r"\s*@#\s*(\w+)\s*(.*)$")
_INSERT = re.compile(r"@\{([^{}]*)\}")
_TOKEN = re.compile(r"\"[^\"]*\"|'[^']*'|&&|\|\||!=|!|[A-Za-z_]\w*|.")
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "in": " in "}
OPENS = {"for": "endfor", "if": "endif", "ifdef": "endif", "ifndef": "endif"}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: lambda a, b: [i for i in a if i not in b] if isinstance(a, list) else a - b,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "length": len,
    "isempty": lambda a: not a,
    "sum": sum,
    "max": max,
    "min": min,
    "mod": operator.mod,
    "floor": lambda a: int(a // 1),
}


def expand(text: str, file: str, folder: Path | None, values: dict[str, Any]) -> list[Line]:
    """The lines of a file after its macros, each with its place.

    Args:
        text: The file.
        file: What messages call it.
        folder: Where `@#include` looks.
        values: Macro variables, as of the command line; more are defined here.
    """
    lines = [
        (Place(file, i), line) for i, line in enumerate(without_comments(text).splitlines(), 1)
    ]
    return list(_run(_joined(lines), values, folder))


def _joined(lines: list[Line]) -> list[Line]:
    """Directives that go on behind a backslash as one line."""
    found: list[Line] = []
    for place, line in lines:
        if found and found[-1][1].lstrip().startswith("@#") and found[-1][1].endswith("\\"):
            found[-1] = (found[-1][0], found[-1][1].rstrip("\\ ") + " " + line.strip())
        else:
            found.append((place, line.rstrip()))
    return found


def _run(lines: list[Line], values: dict[str, Any], folder: Path | None) -> Iterator[Line]:
    i = 0
    while i < len(lines):
        (place, line), i = lines[i], i + 1
        directive = _DIRECTIVE.match(line)
        if directive is None:
            yield place, _INSERT.sub(lambda m, at=place: shown(value(m[1], at, values)), line)
            continue
        word, rest = directive.groups()
        if word in OPENS:
            end = _end(lines, i, place, word)
            yield from _block(word, rest, place, lines[i:end], values, folder)
            i = end + 1
        elif word == "define":
            _define(rest, place, values)
        elif word == "include":
            yield from _included(str(value(rest, place, values)), place, values, folder)
        elif word == "error":
            raise fail(place, str(value(rest, place, values)), "The file says so.", "see there.")
        elif word not in ("echo", "echomacrovars"):
            raise fail(
                place,
                f"`@#{word}` is not read.",
                "Macros are define, if, ifdef, ifndef, for, include and error.",
                "write out what it stands for.",
            )


def _end(lines: list[Line], i: int, place: Place, word: str) -> int:
    """The line that ends what has begun before line i."""
    open_: list[str] = [OPENS[word]]
    for j in range(i, len(lines)):
        found = _DIRECTIVE.match(lines[j][1])
        if found and found[1] in OPENS:
            open_.append(OPENS[found[1]])
        elif found and found[1] == open_[-1]:
            open_.pop()
            if not open_:
                return j
    raise fail(place, f"`@#{word}` has no end.", f"It ends with `@#{OPENS[word]}`.", "add it.")


def _block(
    word: str,
    rest: str,
    place: Place,
    body: list[Line],
    values: dict[str, Any],
    folder: Path | None,
) -> Iterator[Line]:
    if word == "for":
        found = re.match(r"\(?\s*([\w\s,]+?)\s*\)?\s+in\s+(.*)$", rest)
        if found is None:
            raise fail(
                place,
                f"`@#for {rest}` is not read.",
                "A loop is over a list.",
                'write `@#for i in ["a", "b"]` or `@#for i in 1:3`.',
            )
        names = [name.strip() for name in found[1].split(",")]
        for each in _turns(names, value(found[2], place, values), place):
            values.update(zip(names, each, strict=True))
            yield from _run(body, values, folder)
        return
    for condition, at, part in _branches(word, rest, place, body):
        if condition is None or _holds(word, condition, at, values):
            yield from _run(part, values, folder)
            return
        word = "if"


def _turns(names: list[str], given: Any, place: Place) -> list[Sequence[Any]]:
    """What the names of a loop stand for, turn after turn."""
    if not isinstance(given, list):
        raise fail(
            place,
            f"the loop is over {shown(given)!r}.",
            "A loop is over a list.",
            'write `@#for i in ["a", "b"]` or `@#for i in 1:3`.',
        )
    turns: list[Sequence[Any]] = []
    for each in given:
        turns.append(each if len(names) > 1 and isinstance(each, (tuple, list)) else [each])
        if len(turns[-1]) != len(names):
            raise fail(
                place,
                f"the loop has {len(names)} names, and {each!r} is in its list.",
                "Each element has a value for each name.",
                'write `@#for (a, b) in [("x", 1), ("y", 2)]`.',
            )
    return turns


def _branches(
    word: str, rest: str, place: Place, body: list[Line]
) -> Iterator[tuple[str | None, Place, list[Line]]]:
    """Conditions and their lines; None is `else`."""
    condition: str | None = rest
    part: list[Line] = []
    depth = 0
    for at, line in body:
        found = _DIRECTIVE.match(line)
        kind = found[1] if found else ""
        depth += (kind in OPENS) - (kind in OPENS.values())
        if depth == 0 and kind in ("elseif", "else"):
            yield condition, place, part
            condition, place, part = (found[2] if found and kind == "elseif" else None), at, []
        else:
            part.append((at, line))
    yield condition, place, part


def _holds(word: str, condition: str, place: Place, values: dict[str, Any]) -> bool:
    if word in ("ifdef", "ifndef"):
        return (condition.strip() in values) == (word == "ifdef")
    return bool(value(condition, place, values))


def _define(rest: str, place: Place, values: dict[str, Any]) -> None:
    name, _, text = rest.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
        raise fail(
            place,
            f"`@#define {rest}` is not read.",
            "It gives one name a number, a text or a list of these.",
            'write `@#define name = ["a", "b"]`.',
        )
    values[name.strip()] = value(text, place, values) if text.strip() else True


def _included(
    name: str, place: Place, values: dict[str, Any], folder: Path | None
) -> Iterator[Line]:
    path = None if folder is None else folder / name
    if path is None or not path.is_file():
        raise fail(
            place,
            f"there is no file {name!r}.",
            "Files are looked for beside the one that includes them.",
            "put it there, or read a file instead of a text.",
        )
    yield from expand(text_of(path), name, path.parent, values)


def shown(found: Any) -> str:
    """A value as text of the model."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    return str(found)


def value(text: str, place: Place, values: dict[str, Any]) -> Any:
    """The value of an expression of macros."""
    text = text.strip()
    inner = text[1:-1] if re.fullmatch(r"\[[^\[\],]*\]", text) else text
    ends = _cut(inner)
    tokens = (token.group() for token in _TOKEN.finditer(text))
    # a name may be a keyword of Python
    source = "".join(
        _WORDS.get(token, f"{token}_" if re.match(r"[A-Za-z_]", token) else token)
        for token in tokens
    )
    try:
        if len(ends) > 1:
            first, *step, last = (int(value(each, place, values)) for each in ends)
            by = step[0] if step else 1
            return list(range(first, last + (1 if by > 0 else -1), by))
        return _value(ast.parse(source.strip(), mode="eval").body, values)
    except ModelError:  # of a part
        raise
    except (SyntaxError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        why = f"{error.args[0]!r} is not defined" if isinstance(error, KeyError) else str(error)
        raise fail(
            place,
            f"{text!r} is not read: {why}.",
            "Macros know numbers, texts, lists, ranges, comparisons, && || ! in, and"
            f" {', '.join(_CALLS)}.",
            "define what is missing before, or write out what it stands for.",
        ) from None


def _cut(text: str) -> list[str]:
    """The parts of a range, outside of brackets and quotes."""
    parts, depth, quoted = [""], 0, ""
    for letter in text:
        if quoted or letter in "\"'":
            quoted = "" if letter == quoted else quoted or letter
        depth += (letter in "([") - (letter in ")]")
        if letter == ":" and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _value(node: ast.expr, values: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=found) if isinstance(found, (int, float, str)):
            return found
        case ast.Name(id=name):
            name = name[:-1]
            return (
                {"true": True, "false": False}[name]
                if name in ("true", "false")
                else (values[name])
            )
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return not _value(a, values)
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return -_value(a, values)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(a, values), _value(b, values))
        case ast.BoolOp(op=op, values=parts):
            found = (_value(part, values) for part in parts)
            return all(found) if isinstance(op, ast.And) else any(found)
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARED:
            return _COMPARED[type(op)](_value(a, values), _value(b, values))
        case ast.List(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(_value(part, values) for part in parts)
        case ast.Subscript(value=a, slice=b):
            at = int(_value(b, values))
            if at < 1:
                raise IndexError("the first element is number 1")
            return _value(a, values)[at - 1]
        case ast.Call(func=ast.Name(id=name), args=args) if name[:-1] in _CALLS:
            return _CALLS[name[:-1]](*(_value(arg, values) for arg in args))
        case _:
            raise SyntaxError("an expression of another kind")


def defined(given: Any) -> dict[str, Any]:
    """Macro variables that a caller gives.

    Raises:
        ModelError: They are something else than numbers, texts and lists by name.
    """
    if given is None:
        return {}
    plain = isinstance(given, dict) and all(
        isinstance(name, str) and isinstance(each, (bool, int, float, str, list))
        for name, each in given.items()
    )
    if not plain:
        raise ModelError(
            f"read_mod: defines is {given!r}.\nIt is a dict of numbers, texts and lists by name.\n"
            'Fix: pass defines={"countries": ["home", "foreign"]}.'
        )
    return dict(given)
