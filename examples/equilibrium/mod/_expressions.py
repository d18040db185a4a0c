"""Expressions of equations as small trees, which know at which dates they read variables.

Python's own grammar reads them, once `^` is `**` and no name is a keyword of Python: `k(-1)` is a
call to it.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._places import Place, fail

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SPLIT = re.compile(r"(?<![=<>!])=(?!=)")
_OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "^",
}
# one argument each, under NumPy's and JAX's names
_ONE = {
    "exp": "exp",
    "log": "log",
    "ln": "log",
    "log10": "log10",
    "sqrt": "sqrt",
    "cbrt": "cbrt",
    "abs": "abs",
    "sign": "sign",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
_TWO = {"max": "maximum", "min": "minimum"}
_NORMAL = ("normcdf", "normpdf")
LARGE = 2.0**31  # exponents that are not whole numbers for JAX
FUNCTIONS = (*_ONE, *_TWO, *_NORMAL, "erf", "diff")


@dataclass(frozen=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True)
class Name:
    """A variable at a date after today's, or a parameter."""

    name: str
    lead: int
    place: Place


@dataclass(frozen=True)
class Steady:
    """A variable in the steady state."""

    name: str
    place: Place


@dataclass(frozen=True)
class Call:
    """An operator or a function of expressions."""

    function: str
    args: "tuple[Expression, ...]"


Expression = Number | Name | Steady | Call


def equation(text: str, place: Place) -> Expression:
    """What is zero: the left side less the right one, or all where there is no equals sign."""
    sides = _SPLIT.split(text)
    if len(sides) > 2:
        raise fail(
            place,
            f"{text.strip().splitlines()[0]!r} has more than one equals sign.",
            "An equation has one.",
            "look for a missing semicolon.",
        )
    left = parse(sides[0], place)
    if len(sides) == 1:
        return left
    return Call("-", (left, parse(sides[1], place.below(sides[0].count("\n")))))


def parse(text: str, place: Place) -> Expression:
    """The tree of an expression."""
    source = "(" + _NAME.sub(r"\g<0>_", text).replace("^", "**") + "\n)"
    try:
        found = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError) as error:  # the latter of a character that is none
        at = place.below((getattr(error, "lineno", 1) or 1) - 1)
        raise fail(
            at,
            f"{_first(text)} is not an expression.",
            "Expressions are of numbers, names, + - * / ^, parentheses and functions.",
            "look for a missing operator, parenthesis or semicolon.",
        ) from None
    return _Reader(source, place).read(found.body)


def _first(text: str) -> str:
    """The first line of a text, and the second one, which may be the next statement."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [text]
    return repr(lines[0]) + (f", which goes on with {lines[1]!r}," if len(lines) > 1 else "")


@dataclass(frozen=True)
class _Reader:
    """From Python's tree to ours; the source tells where parentheses stand."""

    source: str
    place: Place

    def read(self, node: ast.expr) -> Expression:
        """One node with all below it."""
        at = self.place.below(node.lineno - 1)
        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                return Number(float(value))
            case ast.Name(id=name):
                return Name(name[:-1], 0, at)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return Call("neg", (self.read(a),))
            case ast.UnaryOp(op=ast.UAdd(), operand=a):
                return self.read(a)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                if isinstance(op, ast.Pow) and self._is_chain(b):
                    raise fail(
                        at,
                        "a power of a power has no parentheses.",
                        "Dynare and MATLAB begin at the left, mathematics at the right.",
                        "write (a^b)^c or a^(b^c).",
                    )
                return Call(_OPERATORS[type(op)], (self.read(a), self.read(b)))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name[:-1], args, at)
            case _:
                what = ast.get_source_segment(self.source, node) or ""
                raise fail(
                    at,
                    f"`{re.sub(r'_(?![A-Za-z0-9])', '', what)}` is not read.",
                    "Expressions are of numbers, names, + - * / ^, parentheses and functions.",
                    "write the equation without it.",
                )

    def _is_chain(self, node: ast.expr) -> bool:
        """Whether the right side of a power is one itself, without parentheses around it; behind a
        sign too.
        """
        while isinstance(node, ast.UnaryOp) and not self._enclosed(node):
            node = node.operand
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
            return False
        return not self._enclosed(node)

    def _enclosed(self, node: ast.expr) -> bool:
        """Whether a parenthesis stands before it."""
        lines = self.source.splitlines(keepends=True)
        before = "".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
        return before.rstrip().endswith("(")

    def _call(self, name: str, args: list[ast.expr], at: Place) -> Expression:
        given = [self.read(arg) for arg in args]
        if name.lower() == "steady_state" and len(given) == 1 and isinstance(given[0], Name):
            return Steady(given[0].name, at)
        if name == "diff" and len(given) == 1:
            return Call("-", (given[0], shift(given[0], -1)))
        counts = {1: (*_ONE, *_NORMAL, "erf"), 2: tuple(_TWO), 3: _NORMAL}
        if name in counts.get(len(given), ()):
            return Call(name, tuple(given))
        lead = _whole(given[0]) if len(given) == 1 and name not in FUNCTIONS else None
        if lead is None:
            raise fail(
                at,
                f"`{name}` of {len(given)} is not read.",
                f"Functions are {', '.join(FUNCTIONS)} and steady_state, and a variable may have a"
                " lead or a lag in whole dates.",
                "write the equation with these.",
            )
        return Name(name, lead, at)


def _whole(given: Expression) -> int | None:
    """A whole number, as leads and lags are."""
    if isinstance(given, Call) and given.function == "neg":
        inner = _whole(given.args[0])
        return None if inner is None else -inner
    whole = isinstance(given, Number) and given.value.is_integer()
    return int(given.value) if isinstance(given, Number) and whole else None


def walk(given: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield given
    if isinstance(given, Call):
        for arg in given.args:
            yield from walk(arg)


def replaced(given: Expression, by: Callable[[Name], Expression]) -> Expression:
    """The expression with something else for each name."""
    if isinstance(given, Name):
        return by(given)
    if isinstance(given, Call):
        return Call(given.function, tuple(replaced(arg, by) for arg in given.args))
    return given


def shift(given: Expression, dates: int) -> Expression:
    """The expression as it is so many dates later; parameters move too, which does not matter."""
    return replaced(given, lambda name: Name(name.name, name.lead + dates, name.place))


def written(given: Expression) -> str:
    """The expression as text, with parentheses around all that has an operator."""
    match given:
        case Number(value):
            return f"{value:g}"
        case Name(name, lead, _):
            return f"{name}({lead:+d})" if lead else name
        case Steady(name, _):
            return f"steady_state({name})"
        case Call("neg", (a,)):
            return f"(-{written(a)})"
        case Call(function, (a, b)) if function in _OPERATORS.values():
            return f"({written(a)}{function}{written(b)})"
        case Call(function, args):
            return f"{function}({','.join(map(written, args))})"


Read = Callable[[Name | Steady], Any]
Memo = dict[int, Any]


def evaluate(given: Expression, read: Read, memo: Memo | None = None, *, traced: bool) -> Any:
    """The value of an expression.

    Args:
        given: The expression.
        read: From a name to its value.
        memo: Values by the identity of parts, which several equations may share.
        traced: By JAX, or on the host in float64.
    """
    if isinstance(given, Number):
        return given.value if traced else np.float64(given.value)
    if not isinstance(given, Call):
        return read(given)
    memo = {} if memo is None else memo
    if id(given) not in memo:
        args = [evaluate(arg, read, memo, traced=traced) for arg in given.args]
        memo[id(given)] = _applied(given.function, args, traced)
    return memo[id(given)]


def _applied(function: str, args: list[Any], traced: bool) -> Any:
    match function, args:
        case "+", (a, b):
            return a + b
        case "-", (a, b):
            return a - b
        case "*", (a, b):
            return a * b
        case "/", (a, b):
            return a / b
        case "neg", (a,):
            return -a
        case "^", (a, b):
            # a whole number is one for JAX too, so that a negative base has derivatives
            whole = isinstance(b, float) and b.is_integer() and abs(b) < LARGE
            return a ** (int(b) if whole else b)
        case _:
            return _function(function, args, traced)


def _function(name: str, args: list[Any], traced: bool) -> Any:
    library = jnp if traced else np
    if name in _ONE or name in _TWO:
        return getattr(library, _ONE.get(name) or _TWO[name])(*args)
    erf = jax.scipy.special.erf if traced else np.vectorize(math.erf)
    if name == "erf":
        return erf(args[0])
    middle, spread = args[1:] or (0.0, 1.0)
    off = (args[0] - middle) / spread
    if name == "normcdf":
        return 0.5 * (1.0 + erf(off / math.sqrt(2.0)))
    return library.exp(-0.5 * off * off) / (spread * math.sqrt(2.0 * math.pi))
