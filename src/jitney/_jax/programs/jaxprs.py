"""Readers of jaxprs where JAX's versions differ: calls, loops, constants, and the user's source
lines.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeGuard, TypeVar

import jax
from jax.extend import core, source_info_util

from ..._owners import is_users, owner, spelled_place
from ..typed import AnyJaxpr, Atom, Aval, Jaxpr, JaxprEqn, Literal, Var
from .primitives import CALLBACKS, CALLS

T = TypeVar("T")


def open_jaxpr(jaxpr: object) -> tuple[Jaxpr, Sequence[Any]]:
    """Return the open jaxpr and its constants. jax 0.10 has open and closed jaxprs; in 0.12.0.1
    they are one class.
    """
    program: Any = getattr(jaxpr, "jaxpr", jaxpr)
    return program, getattr(jaxpr, "consts", ())


def has_its_constants(jaxpr: object) -> bool:
    """Return whether a jaxpr comes with a value for each of its constants.

    An open one of `jax.make_jaxpr` does not, as lineax holds it in a parameter of its primitive.
    """
    program, held = open_jaxpr(jaxpr)
    return len(held) == len(program.constvars)


def abstract(aval: Aval) -> jax.ShapeDtypeStruct:
    """Return an abstract value as JAX's functions take it, with its weak type."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def is_literal(atom: object) -> TypeGuard[Literal]:
    """Return whether an operand is a literal."""
    return isinstance(atom, core.Literal)


def is_variable(atom: object) -> TypeGuard[Var]:
    """Return whether an operand is a variable."""
    return not isinstance(atom, core.Literal)


def variables(atoms: Iterable[Atom]) -> Iterator[Var]:
    """Yield the variables among the operands, without literals."""
    return filter(is_variable, atoms)


def called_jaxpr(eqn: JaxprEqn) -> AnyJaxpr | None:
    """Return the jaxpr of a call equation (jit, remat, custom derivative); None for other
    primitives.
    """
    return eqn.params.get(CALLS.get(eqn.primitive.name, ""))


def runs(eqn: JaxprEqn) -> AnyJaxpr | None:
    """Return the jaxpr that an equation calls on exactly its own operands, or None."""
    program = called_jaxpr(eqn)
    if program is None or len(open_jaxpr(program)[0].invars) != len(eqn.invars):
        return None
    return program


def programs(params: Mapping[str, object]) -> list[AnyJaxpr]:
    """Return the sub-jaxprs among the parameters of an equation."""
    values: list[Any] = []
    for value in params.values():
        values += value if isinstance(value, (tuple, list)) else (value,)
    return [part for part in values if hasattr(getattr(part, "jaxpr", part), "eqns")]


def equations(jaxpr: object) -> Iterator[JaxprEqn]:
    """Yield every equation of a jaxpr and of its sub-jaxprs, in depth-first order."""
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        yield eqn
        yield from inside(eqn)


def inside(eqn: JaxprEqn) -> Iterator[JaxprEqn]:
    """Yield every equation of the sub-jaxprs of an equation."""
    for program in programs(eqn.params):
        yield from equations(program)


def calls_back(jaxpr: object) -> bool:
    """Return whether a jaxpr has a Python callback, which may print or raise."""
    return any(eqn.primitive.name in (*CALLBACKS, "pure_callback") for eqn in equations(jaxpr))


def effectful_equations(eqns: Iterable[JaxprEqn]) -> Iterator[JaxprEqn]:
    """Yield the equations, nested ones included, with effects other than those of callbacks: writes
    to references, or checks.

    The content of a reference depends on more than the operands and results of its equation.
    """
    for eqn in eqns:
        inner = [held for program in programs(eqn.params) for held in open_jaxpr(program)[0].eqns]
        # An equation inherits the effects of its sub-jaxprs; only the innermost one counts.
        inherited = any(held.effects for held in inner)
        if eqn.effects and not inherited and eqn.primitive.name not in CALLBACKS:
            yield eqn
        yield from effectful_equations(inner)


def name_of(eqn: JaxprEqn) -> str:
    """Name of the function that an equation calls, or else of its primitive."""
    for program in programs(eqn.params):
        name = getattr(getattr(open_jaxpr(program)[0], "debug_info", None), "func_name", None)
        if name is not None and name.isidentifier():
            return name
    return eqn.primitive.name


def is_backward(eqn: JaxprEqn) -> bool:
    """Return whether an equation belongs to a backward pass: JAX records the transposition in the
    name stack, which profilers show.
    """
    return "transpose(" in str(eqn.source_info.name_stack)


def at_line_of(eqn: JaxprEqn) -> AbstractContextManager[object]:
    """Scope in which new equations get the source line of `eqn`."""
    return source_info_util.user_context(eqn.source_info.traceback)


@contextmanager
def standing_at(eqn: JaxprEqn) -> Generator[None]:
    """Scope in which new equations get the source line of `eqn`, its name stack and its
    settings.
    """
    source = eqn.source_info
    name = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(source.traceback, name_stack=name), eqn.ctx.manager:
        yield


def rebind(
    eqn: JaxprEqn,
    values: Sequence[object],
    **changed: object,
) -> list[Any]:
    """Bind the primitive of an equation to other operands, with some parameters changed. The source
    line and the name stack stay.
    """
    primitive, source = eqn.primitive, eqn.source_info
    params = primitive.get_bind_params({**eqn.params, **changed})
    name = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(source.traceback, name_stack=name), eqn.ctx.manager:
        out = primitive.bind(*values, **params)
    return list(out) if primitive.multiple_results else [out]


def scan_parts(eqn: JaxprEqn, operands: list[T]) -> tuple[list[T], list[T], list[T]]:
    """Split the operands of a scan into constants, carry and scanned arrays.

    The parameters differ: `num_consts` and `num_carry` in jax 0.10.2, `ft_in` and `ft_out` in
    0.12.0.1. So the counts come from the ranks: a scanned array has one axis more outside than
    inside.
    """
    program, _ = open_jaxpr(eqn.params["jaxpr"])
    operand_ranks = zip(eqn.invars, program.invars, strict=True)
    scanned = sum(outside.aval.ndim != inside.aval.ndim for outside, inside in operand_ranks)

    # A carry keeps its rank; a stacked output gains an axis.
    result_ranks = zip(eqn.outvars, program.outvars, strict=True)
    carry = sum(outside.aval.ndim == inside.aval.ndim for outside, inside in result_ranks)

    last = len(operands) - scanned
    first = last - carry
    return operands[:first], operands[first:last], operands[last:]


def while_parts(eqn: JaxprEqn, operands: list[T]) -> tuple[list[T], list[T], list[T]]:
    """Split the operands of a while into constants of the condition, constants of the body, and
    carry.
    """
    first = eqn.params["cond_nconsts"]
    last = first + eqn.params["body_nconsts"]
    return operands[:first], operands[first:last], operands[last:]


def solve_operands(eqn: JaxprEqn, operands: list[T]) -> list[T]:
    """Select the operands that the `solve` jaxpr of a custom_linear_solve takes: its constants and
    the right-hand sides.
    """
    lengths = eqn.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat

    # Order of the operands: constants of matvec, vecmat, solve, transpose_solve, then right-hand
    # sides.
    return [
        *operands[start : start + lengths.solve],
        *operands[start + lengths.solve + lengths.transpose_solve :],
    ]


def source_of(eqn: JaxprEqn, held_at: str = "") -> str:
    """Return the user's line of an equation, "fit.py:12 (residual)", or "".

    If a library jitted the code, JAX knows only lines of the library. Then `held_at`, the user's
    line of the call, comes first: "fit.py:12 (residual; lineax's _solve.py:801)".

    `summarize` is the public reader, which skips JAX's own frames. Its text is `file:line:column
    (function)` in jax 0.10.2 and 0.12.0.1, innermost frame last. Frames of installed packages are
    skipped as long as a frame of the user is left, and those of jitney always.
    """
    lines = [
        re.fullmatch(r"(.+?):(\d+)(?::\d+)? \((.*)\)", line)
        for line in source_info_util.summarize(eqn.source_info, 50).splitlines()
    ]
    frames = [line for line in reversed(lines) if line is not None]
    frames = [frame for frame in frames if is_users(frame[1])] or [
        frame for frame in frames if owner(frame[1]) != "jitney"
    ]
    if not frames:
        return held_at
    file, line, function = frames[0].groups()
    return spelled_place(file, line, function.rpartition("<locals>.")[2], held_at)


def draws_jointly(eqn: JaxprEqn) -> bool:
    """Return whether an equation makes the random numbers of several keys together, so that those
    of one key may depend on the keys beside it: JAX maps the generators `rbg` and `unsafe_rbg` so.
    """
    name = eqn.primitive.name
    if name in ("rng_bit_generator", "rng_uniform"):
        return True
    alone = {
        "random_bits": ("key<fry>",),
        "random_split": ("key<fry>", "key<rbg>"),
        "random_fold_in": ("key<fry>", "key<rbg>"),
    }
    return name in alone and str(eqn.invars[0].aval.dtype) not in alone[name]


def maps_jointly(eqn: JaxprEqn) -> bool:
    """Return whether an equation has a rule for `jax.vmap` of the user's, which sees all elements
    together. The rules of JAX and of jitney compute each element alone.
    """
    if eqn.primitive.name != "custom_vmap_call":
        return False
    module = str(getattr(eqn.params["rule"], "__module__", ""))
    return module.partition(".")[0] not in ("jax", "jitney")
