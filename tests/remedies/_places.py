"""Every place of the source that says what to write, found in its syntax.

A message has three parts, and what takes them has a parameter or a field of the name `fix`:
`format_error` and `fail`, the errors that are told later (`Mismatch`, `Refusal`), and the functions
that hand a fix on. Each call of one of these, and each text that is assigned to the name `fix`, is
a place. Where the fix is made by a function of its own, its texts are places of that function.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
_MAKERS = {  # functions whose result is a fix, or a part of one
    "_diagnosis/nonfinite/message.py": ("_advice", "_FIXES", "_ROOT"),
    "_diagnosis/static_variety.py": ("_advice", "_advice_on_number"),
    "_diagnosis/tracer_errors.py": ("_fix", "_static", "_DATA", "_KEEP"),
    "_diagnosis/retraces/remedies.py": "all",
    "_errors.py": ("_fix_of",),
    "_values/array_likes.py": ("numbers_of",),
    "_signature/records.py": ("tree_fix",),
    "_values/static_values.py": ("_numbers",),
    "_stages/derivatives/derive.py": ("KEYWORDS", "KEYWORDS_OF_DERIVATIVES"),
    "_contract/check.py": ("_mapped_fix",),
    "_stages/chunking/refusals.py": ("_WITHOUT",),
}


@dataclass(frozen=True)
class Place:
    """One text of a fix.

    Args:
        at: `_signature/options/readers.py:read_vmap`, the file and the function that it stands in.
        line: Its line.
        words: The text, without what is put into it.
    """

    at: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.at} (line {self.line}): {self.words!r}"


@functools.cache
def places() -> tuple[Place, ...]:
    """All of them, in the order of the files."""
    trees = {file: ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}
    takers = {"format_error": 3, "fail": 3, "Mismatch": 2, "Unkeyed": 2}
    errors = ast.parse((SOURCE / "jitney" / "_errors.py").read_text())
    takers.update((node.name, 3) for node in errors.body if isinstance(node, ast.ClassDef))
    for tree in trees.values():
        takers.update(_takers(tree))
    return tuple(
        place
        for file, tree in trees.items()
        for place in _in_file(file.relative_to(SOURCE).as_posix(), tree, takers)
    )


def _takers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Which functions and classes take a fix, and at which position."""
    for node in _definitions(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if "fix" in names and node.name != "__init__":
                yield node.name, names.index("fix") - (names[0] in ("self", "cls"))
        else:
            fields = [
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            ]
            if "fix" in fields:
                yield node.name, fields.index("fix")


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Its functions and classes at any depth, without a look into expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield child
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _definitions(child)


def _in_file(file: str, tree: ast.Module, takers: dict[str, int]) -> list[Place]:
    path = file.removeprefix("jitney/")
    makers = _MAKERS.get(path, ())
    found: list[Place] = []

    def visit(node: ast.AST, scope: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(
                child,
                (
                    ast.stmt,
                    ast.expr,
                    ast.keyword,
                    ast.ExceptHandler,
                    ast.match_case,
                    ast.withitem,
                    ast.comprehension,
                ),
            ):
                continue
            inner = (
                (*scope, child.name)
                if isinstance(child, (ast.FunctionDef, ast.ClassDef))
                else scope
            )
            if isinstance(child, (ast.Call, ast.Assign, ast.AnnAssign, ast.Return)):
                made = makers == "all" or (bool(inner) and inner[-1] in makers)
                found.extend(_said(child, f"{path}:{'.'.join(inner)}", takers, made=made))
            if (
                not scope
                and isinstance(child, (ast.Assign, ast.AnnAssign))
                and (name := _target(child)) in makers
                and makers != "all"
            ):
                found.extend(
                    Place(f"{path}:{name}", text.lineno, words)
                    for text, words in _texts(child.value)
                )
                continue
            visit(child, inner)

    visit(tree, ())
    return found


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _said(node: ast.AST, at: str, takers: dict[str, int], *, made: bool) -> Iterator[Place]:
    """What a statement or a call says itself."""
    fixes: list[ast.expr] = []
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in takers:
            fixes += node.args[takers[name] : takers[name] + 1]
            fixes += [keyword.value for keyword in node.keywords if keyword.arg == "fix"]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(targets, ast.Tuple) and isinstance(node.value, ast.Tuple):
            fixes += [
                value
                for name, value in zip(targets.elts, node.value.elts, strict=True)
                if ast.unparse(name) == "fix"
            ]
        elif ast.unparse(targets) == "fix":
            fixes.append(node.value)
    elif isinstance(node, ast.Return) and made and node.value is not None:
        fixes.append(node.value)
    for fix in fixes:
        yield from (Place(at, text.lineno, words) for text, words in _texts(fix))


def _texts(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """The texts that an expression may be, each with its words."""
    match node:
        case ast.Constant(str(words)) if words.strip():
            yield node, words
        case ast.JoinedStr():
            words = "…".join(
                part.value
                for part in node.values
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
            if words.strip():
                yield node, words
        case ast.IfExp():
            yield from _texts(node.body)
            yield from _texts(node.orelse)
        case ast.BoolOp():
            for value in node.values:
                yield from _texts(value)
        case ast.Call(func=ast.Name("name_fix")):
            yield node, "did you mean"
            for argument in node.args[2:]:
                yield from _texts(argument)
        case ast.Dict():
            for value in node.values:
                yield from _texts(value)
        case ast.DictComp():
            yield from _texts(node.value)
        case ast.Call(func=ast.Attribute(attr="get" | "join")):
            for argument in node.args:
                yield from _texts(argument)
        case ast.BinOp() | ast.Tuple() | ast.List():
            for value in ast.iter_child_nodes(node):
                if isinstance(value, ast.expr):
                    yield from _texts(value)
        case _:
            return
