"""Read programs of JAX where its versions differ: calls, loops, constants, and the user's lines."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from jax.extend import core, source_info_util

from .._owners import is_users, owner, spelled_place
from .primitives import CALLBACKS, CALLS
from .trees import is_a

T = TypeVar("T")


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A program and its constants. jax 0.10 has open and closed ones; in 0.12.0.1 they are one
    class.
    """
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def is_written(atom: Any) -> bool:
    """Whether what an operation reads is a number that is written into the program, and no variable
    of it.
    """
    return isinstance(atom, core.Literal)


def variables(atoms: Iterable[Any]) -> Iterator[Any]:
    """What is read, but for the numbers that are written into the program."""
    return (atom for atom in atoms if not is_written(atom))


def called(eqn: Any) -> Any | None:
    """The program that an operation calls; None if it is no call."""
    return eqn.params.get(CALLS.get(eqn.primitive.name))


def runs(eqn: Any) -> Any | None:
    """The program that an operation calls on its operands as they are; None if it does not."""
    program = called(eqn)
    return (
        program
        if program is not None and len(opened(program)[0].invars) == len(eqn.invars)
        else None
    )


def programs(params: Mapping[str, Any]) -> list[Any]:
    """The programs among the parameters of an operation."""
    values: list[Any] = [
        part
        for value in params.values()
        for part in (value if is_a(value, (tuple, list)) else (value,))
    ]
    return [part for part in values if hasattr(getattr(part, "jaxpr", part), "eqns")]


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every operation of a program and of those inside it."""
    for eqn in opened(jaxpr)[0].eqns:
        yield eqn
        yield from inside(eqn)


def inside(eqn: Any) -> Iterator[Any]:
    """Every operation of the programs that an operation holds."""
    for program in programs(eqn.params):
        yield from equations(program)


def calls_back(jaxpr: Any) -> bool:
    """Whether a program calls Python, which may print, or raise."""
    return any(eqn.primitive.name in (*CALLBACKS, "pure_callback") for eqn in equations(jaxpr))


def unfollowed(eqns: Iterable[Any]) -> Iterator[Any]:
    """The operations, and those inside them, with effects that are no callback's: they change
    references in place, or check something.

    What a reference holds depends on more than what is read and made says.
    """
    for eqn in eqns:
        inner = [held for program in programs(eqn.params) for held in opened(program)[0].eqns]
        if (
            eqn.effects
            and eqn.primitive.name not in CALLBACKS
            and not any(held.effects for held in inner)
        ):
            yield eqn
        yield from unfollowed(inner)


def name_of(eqn: Any) -> str:
    """The function that an operation calls, by its own name where it has one."""
    for program in programs(eqn.params):
        name = getattr(getattr(opened(program)[0], "debug_info", None), "func_name", None)
        if name is not None and name.isidentifier():
            return name
    return eqn.primitive.name


def is_backward(eqn: Any) -> bool:
    """Whether an operation is of a backward pass: JAX writes that into the names under which
    profilers show it.
    """
    return "transpose(" in str(eqn.source_info.name_stack)


def at_line_of(eqn: Any) -> AbstractContextManager[Any]:
    """The scope in which operations have the line of another."""
    return source_info_util.user_context(eqn.source_info.traceback)


@contextmanager
def standing_at(eqn: Any) -> Generator[None]:
    """The scope in which operations have the line of another, its name in profiles, and its
    settings.
    """
    name = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with source_info_util.user_context(eqn.source_info.traceback, name_stack=name), eqn.ctx.manager:
        yield


def bound(eqn: Any, values: Sequence[Any], **changed: Any) -> list[Any]:
    """The results of an operation on other values, with some parameters changed. It keeps its line
    and its name in profiles.
    """
    params = eqn.primitive.get_bind_params({**eqn.params, **changed})
    name = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with source_info_util.user_context(eqn.source_info.traceback, name_stack=name), eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def scan_parts(eqn: Any, operands: list[T]) -> tuple[list[T], list[T], list[T]]:
    """Constants, carry and what is scanned, of the operands of a scan.

    Its parameters differ: `num_consts` and `num_carry` in jax 0.10.2, `ft_in` and `ft_out` in
    0.12.0.1. So the counts are taken from the ranks: what is scanned has one axis more outside than
    inside.
    """
    program, _ = opened(eqn.params["jaxpr"])
    xs = sum(a.aval.ndim != b.aval.ndim for a, b in zip(eqn.invars, program.invars, strict=True))
    carry = sum(
        a.aval.ndim == b.aval.ndim for a, b in zip(eqn.outvars, program.outvars, strict=True)
    )
    first, last = len(operands) - xs - carry, len(operands) - xs
    return operands[:first], operands[first:last], operands[last:]


def while_parts(eqn: Any, operands: list[T]) -> tuple[list[T], list[T], list[T]]:
    """Constants of the condition, those of the body, and carry, of the operands of a while."""
    first, second = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    return operands[:first], operands[first : first + second], operands[first + second :]


def solve_operands(eqn: Any, operands: list[T]) -> list[T]:
    """What the program that solves a custom_linear_solve takes: its constants and the right-hand
    sides.
    """
    lengths = eqn.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    return [
        *operands[start : start + lengths.solve],
        *operands[start + lengths.solve + lengths.transpose_solve :],
    ]


def source_of(eqn: Any, held_at: str = "") -> str:
    """The user's line of an equation, "fit.py:12 (residual)", or "".

    Where a library has jitted what it does, JAX knows the library's lines alone: the user's is that
    of the call, `held_at`, then, and comes first, "fit.py:12 (residual; lineax's _solve.py:801)".

    `summarize` is the public reader; it skips JAX's own frames. Its text is `file:line:column
    (function)` in jax 0.10.2 and 0.12.0.1, innermost frame last. Frames of installed packages are
    skipped too while one of the user's is left, and jitney's own always.
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
