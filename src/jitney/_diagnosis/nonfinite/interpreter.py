"""Interpreter that finds the operation which produced a NaN or an infinity.

`locate` is called after a program with `debug_nans=True` has returned a value that is not finite.
The equations run one by one, and each value carries its marks (`marked_values.py`).

- NaN comes before infinity: if a result has a NaN, its origin is reported, with the origin of the
  infinity that it came from.
- An infinity in an argument or a constant (`-inf` to start a maximum) is taken as intended. A NaN
  is not.
- Calls are interpreted inside. A loop runs compiled up to the next iteration that produces one,
  which is then interpreted (`loops.py`).
- Everything else is a single operation, also `shard_map` and Pallas kernels. Values that are read
  from a `jax.Ref` have no history.
- Callbacks and prints run again, in loops more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import jax
import numpy as np

from jitney._jax.programs.evaluation import interpret
from jitney._jax.programs.jaxprs import (
    called_jaxpr,
    solve_operands,
    source_of,
)
from jitney._jax.programs.primitives import ARITHMETIC

from ..._jax.typed import JaxprEqn, NumPyArray
from .loops import Loop
from .marked_values import KINDS, Finding, Kind, Mark, MarkedValue, has_nonfinite, keep_marks
from .message import special_advice, summary

_ELEMENTWISE: Final = ARITHMETIC | frozenset(
    ("igamma", "one_minus_square", "polynomial", "reduce_precision", "zeta")
)


def locate(
    closed_jaxpr: object,
    flat_args: Sequence[object],
    results: Sequence[object] = (),
) -> Finding | None:
    """Interpret a closed jaxpr on concrete arguments; return the origin of the NaN or infinity in
    its results.

    Call it outside any trace, in the x64 scope that the jaxpr was traced in, with arguments that
    were not donated.

    Args:
        closed_jaxpr: The program.
        flat_args: Its arguments.
        results: Results of the compiled program. A fused program rounds differently: if a NaN or
            infinity in them does not appear when the operations run one by one, the finding has
            "program" for the operation.
    Returns:
        None if there is nothing to report: the results are finite, or their infinities came in with
        arguments and constants.
    """
    tracer = _Interpreter()
    with (
        jax.debug_nans(False),  # noqa: FBT003 - JAX's own, they would raise here
        jax.debug_infs(False),  # noqa: FBT003 - JAX's own, they would raise here
    ):
        arguments = [tracer.mark_input(x, f"argument {i}", i) for i, x in enumerate(flat_args)]
        evaluated = tracer.follow(closed_jaxpr, arguments, (), "")
    seen = [MarkedValue(x) for x in results]
    for kind in KINDS:
        # NaN is the first kind, so that an infinity is reported only if no result has a NaN.
        marks = [value.marks[kind] for value in evaluated if kind in value.marks]
        if marks:
            first = min(marks, key=lambda mark: mark.rank)
            return None if first.rank[0] else first.finding
        if any(value.has(kind) for value in seen):
            return Finding("program", kind, "")
    return None


class _Interpreter:
    """Interpreter of jaxprs, which numbers its marks in the order of evaluation."""

    def __init__(self) -> None:
        self.orders = count()

    def mark_input(
        self,
        data: object,
        name: str,
        argument: int | None = None,
    ) -> MarkedValue:
        """Value from outside, marked if it is not finite; `name` is where it is seen."""
        value = MarkedValue(data)
        primitive = "constant" if argument is None else "argument"
        for kind in KINDS:
            if value.has(kind):
                value.marks[kind] = self.mark(
                    Finding(primitive, kind, name, (), summary([value]), argument)
                )
        return value

    def mark(self, finding: Finding) -> Mark:
        return Mark(next(self.orders), finding)

    def follow(
        self,
        jaxpr: object,
        arguments: Sequence[MarkedValue],
        path: tuple[str, ...],
        seen_at: str,
    ) -> list[MarkedValue]:
        """Interpret a jaxpr, open or closed."""

        def results(eqn: JaxprEqn, operands: list[MarkedValue]) -> list[MarkedValue]:
            return self.step(eqn, operands, path, source_of(eqn, seen_at))

        def constant(
            data: object,
            _aval: object,
            eqn: JaxprEqn | None,
        ) -> MarkedValue:
            if not has_nonfinite([data]):
                return MarkedValue(data)
            return self.mark_input(data, seen_at if eqn is None else source_of(eqn, seen_at))

        return interpret(jaxpr, arguments, results, constant=constant, lets_go=True)

    def step(
        self,
        eqn: JaxprEqn,
        operands: list[MarkedValue],
        path: tuple[str, ...],
        source: str,
    ) -> list[MarkedValue]:
        """Evaluate one equation; a call, branch, solve or loop is interpreted inside."""
        name = eqn.primitive.name
        program = called_jaxpr(eqn)
        if program is not None:
            inside = (*path, f"jit {eqn.params['name']}") if "name" in eqn.params else path
            return self.follow(program, operands, inside, source)
        if name == "cond":
            return self.branch(eqn, operands, path, source)
        if name == "custom_linear_solve":
            return self.solve(eqn, operands, path, source)
        results = [MarkedValue(data, made_by=name) for data in _bind(eqn, operands)]
        # The common case: the equation ran as a whole, and its results are finite.
        if not any(value.has(kind) for value in results for kind in KINDS):
            return results
        if name in ("scan", "while"):
            marks = Loop.read(eqn, operands).marks(self.follow, results, path, source)
            results = [
                keep_marks(value.data, kinds) for value, kinds in zip(results, marks, strict=True)
            ]
        return [self.judge(eqn, operands, value, path, source) for value in results]

    def branch(
        self,
        eqn: JaxprEqn,
        operands: list[MarkedValue],
        path: tuple[str, ...],
        source: str,
    ) -> list[MarkedValue]:
        index, *rest = operands
        branches = eqn.params["branches"]
        # `lax.cond` clamps its index.
        chosen = min(max(int(index.data), 0), len(branches) - 1)
        return self.follow(branches[chosen], rest, (*path, f"cond branch {chosen}"), source)

    def solve(
        self,
        eqn: JaxprEqn,
        operands: list[MarkedValue],
        path: tuple[str, ...],
        source: str,
    ) -> list[MarkedValue]:
        return self.follow(
            eqn.params["jaxprs"].solve,
            solve_operands(eqn, operands),
            (*path, "linear solve"),
            source,
        )

    def judge(
        self,
        eqn: JaxprEqn,
        operands: list[MarkedValue],
        value: MarkedValue,
        path: tuple[str, ...],
        source: str,
    ) -> MarkedValue:
        """Set the marks of a result: those of the operands they come from, or a new one for this
        equation.
        """
        for kind in KINDS:
            if kind not in value.marks and value.has(kind):
                old, fresh = _origins(eqn, operands, value, kind)
                # At least one bad element has no origin in an operand, so this equation produced
                # it. A NaN may come from an infinity (inf - inf, 0 * inf), whose mark becomes the
                # cause.
                if fresh or not old:
                    inf, _ = (
                        _origins(eqn, operands, value, "inf", of=kind)
                        if kind == "NaN"
                        else ([], False)
                    )
                    cause = min(inf, key=lambda mark: mark.rank).finding if inf else None
                    advice = special_advice(eqn, operands) if kind == "inf" else ""
                    first = _first(value.bad(kind))
                    maker = Finding(
                        eqn.primitive.name,
                        kind,
                        source,
                        path,
                        summary(operands),
                        None,
                        cause,
                        advice,
                        first,
                    )
                    old = [*old, self.mark(maker)]
                # The earliest mark, intended infinities last.
                value.marks[kind] = min(old, key=lambda mark: mark.rank)
        return value


def _origins(
    eqn: JaxprEqn,
    operands: list[MarkedValue],
    value: MarkedValue,
    kind: Kind,
    of: Kind | None = None,
) -> tuple[list[Mark], bool]:
    """Marks of the operands whose bad elements reach the result, and whether other bad elements
    remain.

    Elementwise operations are followed per element, which separates an overflow of `exp` from the
    `-inf` of another element.

    Args:
        eqn: The equation.
        operands: Its operands.
        value: One of its results.
        kind: Kind in the operands.
        of: Kind in the result, if it is another one: a NaN that came from an infinity.
    """
    here = value.bad(of or kind)
    name = eqn.primitive.name
    masks: list[NumPyArray] = []
    if name in _ELEMENTWISE:
        owners = [x for x in operands if x.numbers is not None]
        masks = [np.broadcast_to(x.bad(kind), here.shape) & here for x in owners]
    elif name == "select_n":
        # A `select_n` takes each element from one case: the others do not count.
        which = np.asarray(operands[0].data).astype(int)
        owners = operands[1:]
        masks = [here & x.bad(kind) & (which == k) for k, x in enumerate(owners)]
    else:
        # Any operand that has one may have caused any bad element, such as of a sum or a product.
        owners = [x for x in operands if x.has(kind)]
        masks = [here for _ in owners]
    marks: list[Mark] = []
    for x, mask in zip(owners, masks, strict=True):
        if kind in x.marks and mask.any():
            marks.append(x.marks[kind])
    for mask in masks:
        here = here & np.logical_not(mask)
    return marks, bool(here.any())


def _first(bad: NumPyArray) -> tuple[int, ...]:
    """Index of the first bad element; empty for a single element."""
    return tuple(np.argwhere(bad)[0].tolist()) if bad.size > 1 else ()


def _bind(eqn: Any, operands: list[MarkedValue]) -> list[object]:
    primitive = eqn.primitive
    data = [value.data for value in operands]
    with eqn.ctx.manager:
        result = primitive.bind(*data, **primitive.get_bind_params(eqn.params))
    return list(result) if primitive.multiple_results else [result]
