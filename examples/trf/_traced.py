"""A function as the program that tracing makes of it, by which compiled programs are found again.

Tracing each call reads what the function reads now: globals, closures, attributes of its object. A
program kept by the function itself would go on with what they were at the first call. Arrays among
them become data, so that another set of measurements runs the same program; and two functions that
do the same share it, as a lambda in a loop does with the one before.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array

from . import _numpy
from ._jit import COMPILER
from ._rebound import rebound

# All that functions raise that are given other values than they expect. What is the user's own
# mistake is raised where the function is called with NumPy's arrays.
REFUSED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


# A Python loop over points makes some operations of each: 500 take seconds to compile, thousands
# minutes, where NumPy fits a few hundred points in milliseconds.
LONGEST = 500


@dataclass(frozen=True)
class Traced:
    """A program of x and of the arrays that it reads; equal to another that does the same."""

    key: Hashable
    i: int  # which of the tuples of arrays is its own
    program: core.ClosedJaxpr = field(compare=False, repr=False)

    def __call__(self, x: Array, *read: tuple[Array, ...]) -> Array:
        """Run it, with other arrays in the place of those that it read."""
        own = read[self.i] if read else self.program.consts
        return core.jaxpr_as_fun(core.ClosedJaxpr(self.program.jaxpr, own))(x)[0]


@dataclass(frozen=True)
class Positioned:
    """A program whose arrays of integers and truth values are part of it, so that the structure of
    its Jacobian is known; those of floats are data.
    """

    made: Traced
    key: Hashable
    fixed: tuple[Any, ...] = field(compare=False, repr=False)  # `None` for those of floats

    def __call__(self, x: Array, floats: tuple[Array, ...]) -> Array:
        """Run it."""
        rest = iter(floats)
        read = tuple(next(rest) if one is None else one for one in self.fixed)
        return self.made(x, *((),) * self.made.i, read)


def positioned(made: Traced, read: tuple[Any, ...]) -> tuple[Positioned, tuple[Any, ...]]:
    """A program with its positions, and the arrays of floats that it reads."""
    fixed = tuple(None if one.dtype.kind == "f" else np.asarray(one) for one in read)
    key = tuple(None if one is None else (one.shape, one.tobytes()) for one in fixed)
    floats = tuple(one for one in read if one.dtype.kind == "f")
    return Positioned(made, key, fixed), floats


def traced(
    fun: Callable[[Any], Any], x: np.ndarray, i: int, rows: int = 0
) -> tuple[Traced, tuple[Any, ...]]:
    """A function of one array, and the arrays that it reads.

    Args:
        fun: The function, of NumPy's or JAX's arrays.
        x: Where it is traced.
        i: Which of the tuples of arrays will be its own.
        rows: So many rows of zeros are added behind its result.

    Raises:
        REFUSED: It cannot be traced.
    """

    def longer(made: Array) -> Array:
        made = jnp.atleast_1d(made)
        return jnp.pad(made, [(0, rows)] + [(0, 0)] * (made.ndim - 1)) if rows else made

    def with_numpy(x: Array) -> Array:
        return longer(_numpy.result(rebound(fun)(_numpy.Array(x))))

    try:
        program = jax.make_jaxpr(with_numpy)(x)
    except REFUSED:  # a function of JAX's that looks at the type of what it is given
        program = jax.make_jaxpr(lambda x: longer(jnp.asarray(fun(x))))(x)
    if program.effects:
        raise _numpy.Untraceable("the function has effects")
    count = _operations(program.jaxpr)
    if count > LONGEST:
        raise _numpy.Untraceable(f"a program of {count:,} operations takes long to compile")
    key = _key(program.jaxpr)
    return Traced(key, i, program), tuple(jnp.asarray(const) for const in program.consts)


@lru_cache(maxsize=64)
def compiled(made: Traced) -> Any:
    """It as one compiled program: operation by operation each would be compiled alone."""
    return jax.jit(lambda x, *read: made(x, *read), compiler_options=COMPILER)


@lru_cache(maxsize=64)
def pushed(made: Traced) -> Any:
    """Its derivative along a direction, likewise."""

    def along(x: Array, direction: Array, *read: tuple[Array, ...]) -> Array:
        return jax.jvp(lambda x: made(x, *read), (x,), (direction,))[1]

    return jax.jit(along, compiler_options=COMPILER)


def whole(fun: Callable[[Any], Any], x: Any) -> Traced:
    """The same with the arrays that it reads as part of the program."""
    made, read = traced(fun, x, 0)
    numbers = tuple((one.shape, str(one.dtype), np.asarray(one).tobytes()) for one in read)
    return Traced((made.key, numbers), 0, made.program)


def _operations(jaxpr: core.Jaxpr) -> int:
    """Operations of a program, those of the programs in it included."""
    inner = (value for one in jaxpr.eqns for value in one.params.values())
    parts = (value.jaxpr for value in inner if isinstance(value, core.ClosedJaxpr))
    return len(jaxpr.eqns) + sum(map(_operations, parts))


def _key(jaxpr: core.Jaxpr) -> Hashable:
    """All that a program does, with its variables numbered in their order."""
    numbers: dict[Any, int] = {}

    def named(atom: Any) -> Hashable:
        if isinstance(atom, core.Literal):
            value = np.asarray(atom.val)
            return ("literal", str(atom.aval), str(value.dtype), value.tobytes())
        return numbers.setdefault(atom, len(numbers)), str(atom.aval)

    return (
        tuple(map(named, jaxpr.constvars)),
        tuple(map(named, jaxpr.invars)),
        tuple(
            (
                equation.primitive,
                tuple(map(named, equation.invars)),
                tuple(map(named, equation.outvars)),
                tuple((name, _part(value)) for name, value in sorted(equation.params.items())),
            )
            for equation in jaxpr.eqns
        ),
        tuple(map(named, jaxpr.outvars)),
    )


def _part(value: Any) -> Hashable:
    """A parameter of an operation. What has no equal but itself finds no other program."""
    if isinstance(value, core.ClosedJaxpr):
        return _key(value.jaxpr), tuple(map(_part, value.consts))
    if isinstance(value, core.Jaxpr):
        return _key(value)
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_part, value))
    if isinstance(value, dict):
        return tuple((name, _part(one)) for name, one in value.items())
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return str(value.dtype), np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, float):
        return repr(value)  # -0.0 equals 0.0
    return (type(value), value) if isinstance(value, Hashable) else object()
