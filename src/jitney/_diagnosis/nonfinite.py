"""Search for the operation that produced a NaN or an infinity, by interpreting a jaxpr.

It stands outside the pipeline: `locate` is called after a program with `debug_nans=True` has
returned a value that is not finite. The interpreter runs the equations one by one. Each value
carries two marks, the operation that produced its NaN and the one that produced its infinity, so
that a NaN that is masked later is never reported, and one that reaches a result leads back to its
origin. For `jnp.sum(jnp.log(x) * 0)` with a zero in `x`:

    log x      inf, mark: log
    mul a 0    NaN, mark: mul, cause: log
    sum b      NaN, mark of its operand: mul

- NaN comes before infinity: if a result has a NaN, its origin is reported, with the origin of the
  infinity that it came from.
- An infinity in an argument or a constant (`-inf` to start a maximum) is taken as intended. A NaN
  is not.
- Calls are interpreted inside. A loop runs compiled up to the next iteration that produces one,
  which is then interpreted.
- Everything else is a single operation, also `shard_map` and Pallas kernels. Values that are read
  from a `jax.Ref` have no history.
- Callbacks and prints run again, in loops more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Final, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jitney._errors import NonFiniteError, Where, format_error
from jitney._jax.programs.evaluation import evaluate_jaxpr, interpret
from jitney._jax.programs.jaxprs import (
    called_jaxpr,
    open_jaxpr,
    scan_parts,
    solve_operands,
    source_of,
    while_parts,
)
from jitney._jax.programs.primitives import ARITHMETIC

from .._jax.typed import AnyJaxpr, JaxprEqn, NumPyArray

Kind = Literal["NaN", "inf"]
_KINDS: Final[tuple[Kind, Kind]] = ("NaN", "inf")
_TEST: Final[dict[Kind, Callable[[NumPyArray], NumPyArray]]] = {"NaN": np.isnan, "inf": np.isinf}
_TRACED_TEST: Final[dict[Kind, Callable[[jax.Array], jax.Array]]] = {
    "NaN": jnp.isnan,
    "inf": jnp.isinf,
}
Index = TypeVar("Index", int, jax.Array)
_GIVEN: Final = ("argument", "constant")
# Number of iterations of a loop that are interpreted.
_VISITS: Final = 64

_ELEMENTWISE: Final = ARITHMETIC | frozenset(
    ("igamma", "one_minus_square", "polynomial", "reduce_precision", "zeta")
)
_FIXES: Final = {
    "log": "keep what it is taken of above 0",
    "log1p": "keep what it is taken of above -1",
    "sqrt": "keep what it is taken of at 0 or above; for a gradient, above 0",
    "rsqrt": "keep what it is taken of above 0",
    "div": (
        "keep the divisor away from 0; before a division that `jnp.where` masks, mask the"
        " divisor too"
    ),
    "exp": (
        "keep the exponent below the logarithm of the largest number of its dtype, or use a wider"
        " dtype"
    ),
    "pow": "keep the base at 0 or above, or the exponent an integer",
}


_ROOT: Final = (
    "a square root, as in a norm, has no derivative at 0: give it another number there, and mask"
    " its result, as jnp.where(s > 0, jnp.sqrt(jnp.where(s > 0, s, 1.0)), 0.0) with s ="
    " jnp.sum(x**2) for the norm of x"
)


@dataclass(frozen=True)
class Finding:
    """Operation that produced the first NaN or infinity that reaches a result.

    Args:
        primitive: JAX's name of the operation; "argument", "constant" or "program" if it is not
            one.
        kind: NaN or infinity.
        source: User's line, "fit.py:12 (residual)".
        path: Calls and loops around it, from the outside in: "scan iteration 3", counted from 0.
        inputs: The operands in short.
        argument: Position in the flat arguments, if it came in with one.
        cause: Of a NaN, the origin of the infinity that it came from.
        advice: Remedy, if the operation alone does not imply it.
        element: Index of the first such element in the operation's result; empty if it has a single
            element.
    """

    primitive: str
    kind: Kind
    source: str
    path: tuple[str, ...] = ()
    inputs: str = ""
    argument: int | None = None
    cause: Finding | None = None
    advice: str = ""
    element: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Mark:
    """Finding with its position in the order of evaluation."""

    order: int
    finding: Finding

    @property
    def rank(self) -> tuple[bool, int]:
        # Infinities that came in sort last: any operation's mark precedes them.
        meant = self.finding.kind == "inf" and self.finding.primitive in _GIVEN
        return meant, self.order


@dataclass(frozen=True)
class _Value:
    """Concrete value, with the marks of its NaN and its infinity.

    `made_by` is JAX's name of the operation that returned it.
    """

    data: Any
    marks: dict[Kind, _Mark] = field(default_factory=dict[Kind, _Mark])
    made_by: str = ""

    @cached_property
    def numbers(self) -> NumPyArray | None:
        """Value on the host; None if its dtype has no NaN."""
        return np.asarray(self.data) if _is_inexact(self.data) else None

    def bad(self, kind: Kind) -> Any:
        return None if self.numbers is None else _TEST[kind](self.numbers)

    def has(self, kind: Kind) -> bool:
        bad = self.bad(kind)
        return bad is not None and bool(bad.any())


def nonfinite(leaves: Sequence[object]) -> bool:
    """Return whether any float or complex array has a NaN or an infinity; other leaves pass."""
    return any(
        not np.isfinite(part).all() for leaf in leaves if _is_inexact(leaf) for part in _local(leaf)
    )


def refuse_nonfinite(
    where: Where,
    results: object,
    unknown: str,
    fix: str,
) -> None:
    """Check results whose program cannot be interpreted.

    Args:
        where: The function.
        results: A pytree.
        unknown: Reason why the operation is unknown.
        fix: How to find it.

    Raises:
        NonFiniteError: A result has a NaN or an infinity.
    """
    if nonfinite(jax.tree.leaves(results)):
        rule = f"With debug_nans=True every result must be finite. {unknown}"
        raise NonFiniteError(
            where, "a result has a NaN or an infinity.", rule, f"{fix}; or drop debug_nans=True."
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
    tracer = _NonfiniteInterpreter()
    with (
        jax.debug_nans(False),  # noqa: FBT003 - JAX's own, they would raise here
        jax.debug_infs(False),  # noqa: FBT003 - JAX's own, they would raise here
    ):
        arguments = [tracer.mark_input(x, f"argument {i}", i) for i, x in enumerate(flat_args)]
        evaluated = tracer.follow(closed_jaxpr, arguments, (), "")
    seen = [_Value(x) for x in results]
    for kind in _KINDS:
        # NaN is the first kind, so that an infinity is reported only if no result has a NaN.
        marks = [value.marks[kind] for value in evaluated if kind in value.marks]
        if marks:
            first = min(marks, key=lambda mark: mark.rank)
            return None if first.rank[0] else first.finding
        if any(value.has(kind) for value in seen):
            return Finding("program", kind, "")
    return None


def lanes_text(
    kind: Kind,
    axes: Sequence[str],
    results: Sequence[object],
) -> str:
    """Text on the lanes of mapped axes that have it, where these are the first axes of each result;
    empty if it cannot be determined.
    """
    bad: NumPyArray | None = None
    for result in results:
        numbers = (
            _Value(result).bad(kind) if getattr(result, "is_fully_addressable", True) else None
        )
        if numbers is not None and numbers.ndim >= len(axes) > 0:
            # Lanes are the first axes: a lane is bad if any element of it is.
            here = numbers.reshape(*numbers.shape[: len(axes)], -1).any(-1)
            bad = here if bad is None or bad.shape != here.shape else bad | here
    if bad is None or not bad.any():
        return ""
    first = ", ".join(
        f"{name} = {i}" for name, i in zip(axes, np.argwhere(bad)[0].tolist(), strict=True)
    )
    return f"; {np.count_nonzero(bad)} of {bad.size} lanes have one, the first is {first}"


def message(
    finding: Finding,
    where: Where | str,
    arguments: Sequence[str] = (),
    lanes: str = "",
) -> str:
    """Error text of a finding.

    Args:
        finding: The finding.
        where: The function.
        arguments: Names of the flat arguments.
        lanes: Text on the lanes; see `lanes_text`.
    """
    rule = "With debug_nans=True every result must be finite."
    if finding.argument is not None:
        name = dict(enumerate(arguments)).get(finding.argument, str(finding.argument))
        fix = (
            "pass finite numbers; to find their origin, run the code that made them with"
            " debug_nans=True."
        )
        return format_error(
            where,
            f"argument {name} already has a {finding.kind}, {finding.inputs}{lanes}",
            rule,
            fix,
        )

    if finding.primitive == "program":
        what = (
            f"a result has a {finding.kind}, but no operation makes one when they run one at a"
            f" time{lanes}"
        )
        return format_error(
            where,
            what,
            rule,
            "look for rounding at the edge of overflow or of a domain; compiled programs round"
            " differently.",
        )
    if finding.primitive == "constant":
        what = (
            f"a {finding.kind} is written into the code at"
            f" {finding.source}{_inside(finding)}{lanes}"
        )
        return format_error(
            where, what, rule, "mark failure by a flag or a finite number, or drop debug_nans=True."
        )

    fix = f"{_advice(_maker(finding) or finding)}; or drop debug_nans=True if it is meant."
    return format_error(where, f"{_story(finding)}{lanes}", rule, fix)


def _story(finding: Finding) -> str:
    text = f"`{finding.primitive}` made the first {finding.kind} at {_place(finding)}"
    if maker := _maker(finding):
        text += f"; the infinity it was made of came from `{maker.primitive}` at {_place(maker)}"
    return text


def _maker(finding: Finding) -> Finding | None:
    """The operation that produced the infinity that a NaN came from."""
    return None if finding.cause is None or finding.cause.primitive in _GIVEN else finding.cause


def _place(finding: Finding) -> str:
    element = f", element [{', '.join(map(str, finding.element))}]" if finding.element else ""
    return f"{finding.source}{_inside(finding)}{element}" + (
        f", from {finding.inputs}" if finding.inputs else ""
    )


def _inside(finding: Finding) -> str:
    return f", in {', '.join(finding.path)}" if finding.path else ""


def _advice(finding: Finding) -> str:
    if finding.advice:
        return finding.advice
    name = f"`{finding.primitive}`"
    fix = (
        f"scale the inputs of {name} down, or use a wider dtype"
        if finding.kind == "inf"
        else f"give {name} inputs it is defined for"
    )
    return _FIXES.get(finding.primitive, fix)


def _special(eqn: JaxprEqn, operands: Sequence[_Value]) -> str:
    """Advice against an infinity that the operation alone does not imply.

    JAX differentiates `sqrt(x)` to 0.5 / sqrt(x), and 1 / x to a negative power.
    """
    name = eqn.primitive.name
    numbers = operands[0].numbers if operands else None
    if numbers is None:
        return ""
    if name == "div" and operands[1].made_by == "sqrt":
        is_half = numbers.ndim == 0 and float(np.real(numbers)) == 0.5
        return _ROOT if is_half else ""
    if name in ("integer_pow", "pow") and not numbers.all():
        return _FIXES["div"]
    return ""


class _NonfiniteInterpreter:
    """Interpreter of jaxprs, which numbers its marks in the order of evaluation."""

    def __init__(self) -> None:
        self.orders = count()

    def mark_input(
        self,
        data: object,
        name: str,
        argument: int | None = None,
    ) -> _Value:
        """Value from outside, marked if it is not finite; `name` is where it is seen."""
        value = _Value(data)
        primitive = "constant" if argument is None else "argument"
        for kind in _KINDS:
            if value.has(kind):
                value.marks[kind] = self.mark(
                    Finding(primitive, kind, name, (), _summary([value]), argument)
                )
        return value

    def mark(self, finding: Finding) -> _Mark:
        return _Mark(next(self.orders), finding)

    def follow(
        self,
        jaxpr: object,
        arguments: Sequence[_Value],
        path: tuple[str, ...],
        seen_at: str,
    ) -> list[_Value]:
        """Interpret a jaxpr, open or closed."""

        def results(eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
            return self.step(eqn, operands, path, source_of(eqn, seen_at))

        def constant(
            data: object,
            _aval: object,
            eqn: JaxprEqn | None,
        ) -> _Value:
            if not nonfinite([data]):
                return _Value(data)
            return self.mark_input(data, seen_at if eqn is None else source_of(eqn, seen_at))

        return interpret(jaxpr, arguments, results, constant=constant, lets_go=True)

    def step(
        self,
        eqn: JaxprEqn,
        operands: list[_Value],
        path: tuple[str, ...],
        source: str,
    ) -> list[_Value]:
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
        results = [_Value(data, made_by=name) for data in _bind(eqn, operands)]
        # The common case: the equation ran as a whole, and its results are finite.
        if not any(value.has(kind) for value in results for kind in _KINDS):
            return results
        if name in ("scan", "while"):
            marks = _Loop.read(eqn, operands).marks(self, results, path, source)
            results = [
                _mark_value(value.data, kinds) for value, kinds in zip(results, marks, strict=True)
            ]
        return [self.judge(eqn, operands, value, path, source) for value in results]

    def branch(
        self,
        eqn: JaxprEqn,
        operands: list[_Value],
        path: tuple[str, ...],
        source: str,
    ) -> list[_Value]:
        index, *rest = operands
        branches = eqn.params["branches"]
        # `lax.cond` clamps its index.
        chosen = min(max(int(index.data), 0), len(branches) - 1)
        return self.follow(branches[chosen], rest, (*path, f"cond branch {chosen}"), source)

    def solve(
        self,
        eqn: JaxprEqn,
        operands: list[_Value],
        path: tuple[str, ...],
        source: str,
    ) -> list[_Value]:
        return self.follow(
            eqn.params["jaxprs"].solve,
            solve_operands(eqn, operands),
            (*path, "linear solve"),
            source,
        )

    def judge(
        self,
        eqn: JaxprEqn,
        operands: list[_Value],
        value: _Value,
        path: tuple[str, ...],
        source: str,
    ) -> _Value:
        """Set the marks of a result: those of the operands they come from, or a new one for this
        equation.
        """
        for kind in _KINDS:
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
                    advice = _special(eqn, operands) if kind == "inf" else ""
                    first = _first(value.bad(kind))
                    maker = Finding(
                        eqn.primitive.name,
                        kind,
                        source,
                        path,
                        _summary(operands),
                        None,
                        cause,
                        advice,
                        first,
                    )
                    old = [*old, self.mark(maker)]
                # The earliest mark, intended infinities last.
                value.marks[kind] = min(old, key=lambda mark: mark.rank)
        return value


_State = tuple[jax.Array, list[jax.Array], jax.Array]
"""Iteration, carry, and whether the loop has stopped."""


@dataclass(frozen=True)
class _Loop:
    """A scan or while loop in one form: `body(*constants, *carry, *x) -> (*carry, *y)`."""

    name: str
    body: AnyJaxpr
    constants: list[_Value]
    carry: list[_Value]
    xs: list[_Value]
    length: int | None = None
    reverse: bool = False
    condition: AnyJaxpr | None = None
    condition_constants: tuple[object, ...] = ()

    @classmethod
    def read(cls, eqn: JaxprEqn, operands: list[_Value]) -> _Loop:
        """Read the loop of an equation, with the values of its operands."""
        params = eqn.params
        if eqn.primitive.name == "while":
            of_condition, constants, carry = while_parts(eqn, operands)
            fixed = tuple(value.data for value in of_condition)
            return cls(
                "while",
                params["body_jaxpr"],
                constants,
                carry,
                [],
                condition=params["cond_jaxpr"],
                condition_constants=fixed,
            )
        return cls(
            "scan", params["jaxpr"], *scan_parts(eqn, operands), params["length"], params["reverse"]
        )

    def marks(
        self,
        tracer: _NonfiniteInterpreter,
        results: list[_Value],
        path: tuple[str, ...],
        source: str,
    ) -> list[dict[Kind, _Mark]]:
        """Marks of the results; if infinities come and go in too many iterations, those of NaNs
        alone.
        """
        has_nan = any(value.has("NaN") for value in results)
        marks = self.visit(tracer, _KINDS if has_nan else ("inf",), path, source)
        if marks is None and has_nan:
            marks = self.visit(tracer, ("NaN",), path, source)
        return [{} for _ in results] if marks is None else marks

    def visit(
        self,
        tracer: _NonfiniteInterpreter,
        kinds: tuple[Kind, ...],
        path: tuple[str, ...],
        source: str,
    ) -> list[dict[Kind, _Mark]] | None:
        """Interpret each iteration that produces a new NaN or infinity; None if there are too
        many.
        """
        # Alternate: run compiled until the next such iteration, then interpret it to find the
        # operation.
        carry, i = self.carry, 0
        ys: list[dict[Kind, _Mark]] = [{} for _ in open_jaxpr(self.body)[0].outvars[len(carry) :]]
        stride = self.stride(kinds)
        for _ in range(_VISITS):
            # Slots whose maker is known do not stop the run again.
            settled = [
                [_has_maker(marks, kind) for kind in kinds]
                for marks in (*(value.marks for value in carry), *ys)
            ]
            at, data, stopped = stride(
                i,
                [x.data for x in carry],
                settled,
                [x.data for x in self.constants],
                [x.data for x in self.xs],
            )
            # A slot keeps its marks as long as it still has a NaN or an infinity.
            carry = [_mark_value(new, old.marks) for new, old in zip(data, carry, strict=True)]
            if not bool(stopped):
                return [*(value.marks for value in carry), *ys]
            i = int(at)
            position = self.position(i)
            inputs = [
                *self.constants,
                *carry,
                *(_mark_value(x.data[position], x.marks) for x in self.xs),
            ]
            outputs = tracer.follow(
                self.body, inputs, (*path, f"{self.name} iteration {position}"), source
            )
            carry, new = outputs[: len(carry)], outputs[len(carry) :]
            ys = [{**value.marks, **_lasting(marks)} for value, marks in zip(new, ys, strict=True)]
            i += 1
        return None

    def position(self, i: Index) -> Index:
        if self.reverse and self.length is not None:
            return self.length - 1 - i
        return i

    def more(self, i: jax.Array, carry: Sequence[object]) -> jax.Array:
        if self.condition is None:
            return i < (self.length or 0)
        return _evaluate(self.condition, [*self.condition_constants, *carry])[0]

    def stride(self, kinds: tuple[Kind, ...]) -> Callable[..., _State]:
        """Compile a run from iteration `i` to the start of the next one that produces something, or
        to the end.
        """

        def run(
            i: jax.Array,
            carry: list[jax.Array],
            settled: list[list[jax.Array]],
            constants: list[jax.Array],
            xs: list[jax.Array],
        ) -> _State:
            def going(state: _State) -> jax.Array:
                i, carry, stopped = state
                return ~stopped & self.more(i, carry)

            def advance(state: _State) -> _State:
                i, carry, _ = state
                x = [jax.lax.dynamic_index_in_dim(x, self.position(i), keepdims=False) for x in xs]
                out = _evaluate(self.body, [*constants, *carry, *x])

                new = out[: len(carry)]
                before = [*carry, *(None for _ in out[len(carry) :])]
                slots = zip(before, out, settled, strict=True)
                stopped = jnp.any(jnp.array([_news(*slot, kinds) for slot in slots]))
                # Return the carry from before that iteration, so that it can be interpreted from
                # its inputs.
                kept = [jax.lax.select(stopped, *both) for both in zip(carry, new, strict=True)]
                return jnp.where(stopped, i, i + 1), kept, stopped

            begin: Any = (i, carry, False)
            return jax.lax.while_loop(going, advance, begin)

        return jax.jit(run)


def _news(
    old: jax.Array | None,
    new: jax.Array,
    settled: Sequence[jax.Array],
    kinds: tuple[Kind, ...],
) -> jax.Array | bool:
    """Return whether an iteration puts a new NaN or infinity into a slot whose maker is not
    known.
    """
    if not _is_inexact(new):
        return False
    news: jax.Array | bool = False
    for kind, known in zip(kinds, settled, strict=True):
        bad = _TRACED_TEST[kind](new)
        if old is None:
            news |= jnp.any(bad) & ~known
        else:
            before = _TRACED_TEST[kind](old)
            # NaN != NaN; an infinity counts as the same only with its sign.
            same = before if kind == "NaN" else before & (old == new)
            news |= jnp.any(bad & ~same) & ~(known & jnp.any(before))
    return news


def _has_maker(marks: dict[Kind, _Mark], kind: Kind) -> bool:
    """Return whether a maker that is worth reporting is known, so that later ones are not looked
    for.
    """
    return kind in marks and not marks[kind].rank[0]


def _lasting(marks: dict[Kind, _Mark]) -> dict[Kind, _Mark]:
    return {kind: mark for kind, mark in marks.items() if not mark.rank[0]}


def _mark_value(data: object, marks: dict[Kind, _Mark]) -> _Value:
    value = _Value(data)
    value.marks.update({kind: mark for kind, mark in marks.items() if value.has(kind)})
    return value


def _origins(
    eqn: JaxprEqn,
    operands: list[_Value],
    value: _Value,
    kind: Kind,
    of: Kind | None = None,
) -> tuple[list[_Mark], bool]:
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
    marks: list[_Mark] = []
    for x, mask in zip(owners, masks, strict=True):
        if kind in x.marks and mask.any():
            marks.append(x.marks[kind])
    for mask in masks:
        here = here & np.logical_not(mask)
    return marks, bool(here.any())


def _first(bad: NumPyArray) -> tuple[int, ...]:
    """Index of the first bad element; empty for a single element."""
    return tuple(np.argwhere(bad)[0].tolist()) if bad.size > 1 else ()


def _bind(eqn: Any, operands: list[_Value]) -> list[object]:
    primitive = eqn.primitive
    data = [value.data for value in operands]
    with eqn.ctx.manager:
        result = primitive.bind(*data, **primitive.get_bind_params(eqn.params))
    return list(result) if primitive.multiple_results else [result]


def _evaluate(jaxpr: AnyJaxpr, arguments: Sequence[object]) -> list[jax.Array]:
    return evaluate_jaxpr(*open_jaxpr(jaxpr), arguments)


def _is_inexact(x: Any) -> bool:
    if isinstance(x, (float, complex)):
        return True
    return (
        hasattr(x, "dtype") and not isinstance(x, jax.Ref) and jnp.issubdtype(x.dtype, np.inexact)
    )


def _is_number(x: object) -> bool:
    return _is_inexact(x) or (isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, np.integer))


def _local(x: object) -> list[NumPyArray]:
    """Parts of an array that this process can address."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return [np.asarray(shard.data) for shard in x.addressable_shards]
    return [np.asarray(x)]


def _summary(values: Sequence[_Value]) -> str:
    """Text on the first operands: dtype, shape, and the range of the finite elements."""
    texts = [_describe(value.data) for value in values if _is_number(value.data)]
    return " and ".join([*texts[:3], *(["more"] if len(texts) > 3 else [])])


def _describe(data: object) -> str:
    x = np.asarray(data)
    if x.ndim == 0 and not isinstance(data, jax.Array):
        # A literal of the code: its dtype follows from the other operand.
        return f"{x:.6g}"
    shape = f"{x.dtype}[{','.join(map(str, x.shape))}]"
    if x.size == 0 or not jnp.isdtype(x.dtype, ("integral", "real floating")):
        return shape
    finite = x[np.isfinite(x)]
    parts = [
        f"{np.count_nonzero(bad)} {kind}"
        for kind, bad in (("NaN", np.isnan(x)), ("inf", np.isinf(x)))
        if bad.any()
    ]
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
        parts.insert(0, f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")
    return f"{shape} ({', '.join(parts)})"
