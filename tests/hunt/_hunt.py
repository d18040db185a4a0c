"""One case from end to end: draw it, run it under options, compare, and say what fell."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import jitney

from . import (
    _auto,
    _captured,
    _combined,
    _derivatives,
    _held,
    _large,
    _options,
    _ragged,
    _settings,
    _stacks,
)
from ._draw import ALL, Case, Expression, drawn
from ._judge import difference, is_overflow, is_unstable, leaves_of, unblurred
from ._narrow import is_narrow, rounded_once
from ._options import NotFloatingError, Way
from ._program import Program, joined
from ._recipe import Exact, Recipe

# What XLA for CPUs cannot compile in plain JAX either (jax 0.10.2, 0.12.0.1): int4 indices of
# batches of 8 or more; of arrays that lie over
# devices, `lax.mulhi` of integers of 4 bits, and `lax.reduce` with a computation of its own.
XLAS = (
    "does not support custom element sizes",
    "Unable to convert MHLO to StableHLO",
    "Unsupported reduction computation",
)
FEW = 3  # expressions of a case under an option that takes one at a time
OPTIONS = {
    **_options.OPTIONS,
    **_combined.OPTIONS,
    **_stacks.OPTIONS,
    **_held.HELD,
    **_captured.CAPTURED,
    **_settings.SETTINGS,
    **_auto.AUTO,
    **_ragged.OPTIONS,
    **_derivatives.DERIVATIVES,
    **_large.LARGE,
}
ALONE = ("derivatives", *_large.LARGE)  # options that are tried only where they are named
JITNEY = (jitney.JitneyError, jitney.JitneyWarning)


@dataclass(frozen=True)
class Finding:
    """Something that must not be: a wrong number, an error that is not jitney's own, or no end."""

    kind: str  # "wrong", "raw", "rounding"
    option: str
    what: str
    seed: int
    index: int
    program: Program
    code: str
    n: int
    dtype: str
    exact: Exact
    draw: int


@dataclass
class Score:
    """What was tried, by option, and what came of it."""

    tried: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    unstable: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])
    # of operations by themselves
    reasons: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    # Takes the name of each step, so that a slow case is no hang.
    told: Callable[[str], None] = lambda text: None

    def refuse(self, option: str, expression: Expression, why: str) -> None:
        self.refused[option] += 1
        if len(expression.recipes) == 1:
            self.reasons.setdefault(f"{option}: {expression.recipes[0].text}", set()).add(why)


def hunt(
    seed: int,
    index: int,
    only: Iterable[str] = (),
    most: int = 4,
    told: Callable[[str], None] = lambda text: None,
    among: Sequence[Recipe] = ALL,
    many: int = 8,
    sizes: int = 1,
) -> Score:
    """Run the case of a seed and an index, under as many options as `most`, of those named in
    `only`; what is padded, at so many other `sizes` of its bucket.
    """
    case = drawn(seed, index, many, among)
    score = Score(told=told)
    told(f"{case.dtype} {case.flavour} n={case.n}")
    with case.numbers(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rng = np.random.default_rng([seed, index, 2])
        names = [name for name in OPTIONS if (name in only if only else name not in ALONE)]
        shares = np.array([OPTIONS[name].share for name in names])
        chosen = rng.choice(
            len(names), min(most, len(names)), replace=False, p=shares / shares.sum()
        )
        cases = _Plain(case)
        for k in sorted(chosen):
            told(names[k])
            _under(names[k], case, cases, score, int(rng.integers(2**31)), sizes)
    return score


class _Plain:
    """What plain JAX makes of the expressions of a case, by reference, name and size; None where it
    cannot run one.
    """

    def __init__(self, case: Case):
        self.case = case
        self.results: dict[tuple[str, str, int], list[Any] | None] = {}

    def fill(
        self, way: Callable[[Program], Way], able: Mapping[str, tuple[Expression, Way]], n: int
    ) -> None:
        """The results of several expressions in one program; of each by itself if that fails."""
        missing = [
            name
            for name, (_, made) in able.items()
            if (made.reference, name, n) not in self.results
        ]
        if len(missing) > 1 and self._run(
            way(joined([able[name][0].program for name in missing])), missing, able, n
        ):
            return
        for name in missing:
            e, made = able[name]
            if not self._run(made, [name], able, n):
                self.results[made.reference, e.name, n] = None

    def _run(
        self, made: Way, names: Sequence[str], able: Mapping[str, tuple[Expression, Way]], n: int
    ) -> bool:
        program = joined([able[name][0].program for name in names])
        try:
            out = made.theirs(made.reshaped(taken(program, self.case.arrays(n))))
            parts = [leaves_of(part) for part in out]
        except Exception:  # noqa: BLE001
            return False
        self.results.update(
            ((made.reference, name, n), part) for name, part in zip(names, parts, strict=True)
        )
        return True


def taken(program: Program, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays[name] for name, _ in program.takes}


def _under(option: str, case: Case, known: _Plain, score: Score, draw: int, sizes: int) -> None:
    """All expressions of a case under one option."""

    def way(program: Program) -> Way | None:
        return OPTIONS[option].make(
            np.random.default_rng(draw), program.compiled(), program, case.n
        )

    if OPTIONS[option].together:
        _together(option, case, known, score, way, draw, sizes)
        return
    at = draw % max(len(case.expressions), 1)
    for e in (case.expressions[at:] + case.expressions[:at])[:FEW]:
        _alone(option, case, e, score, way, draw)


def _together(
    option: str,
    case: Case,
    known: _Plain,
    score: Score,
    way: Callable[[Program], Any],
    draw: int,
    sizes: int,
) -> None:
    """Expressions that are not refused go into one program, since most of the time is the
    compiler's.
    """
    able = {e.name: (e, made) for e in case.expressions if (made := way(e.program)) is not None}
    if not able:
        return
    reference = next(iter(able.values()))[1].reference
    if reference == "f64":
        for e, _ in able.values():
            _alone(option, case, e, score, way, draw)
        return
    known.fill(way, able, case.n)
    able = {
        name: pair
        for name, pair in able.items()
        if known.results.get((reference, name, case.n)) is not None
    }
    accepted = [e for e, made in able.values() if _accepts(option, case, e, made, score, draw)]
    if not accepted:
        return
    program = joined([e.program for e in accepted])
    made = way(program)
    others = case.others(sizes) if "pad" in option else ()
    for n in dict.fromkeys((case.n, *others)):
        score.told(f"{option} of {len(accepted)} at {n}")
        try:
            known.fill(way, {e.name: able[e.name] for e in accepted}, n)
            given = made.reshaped(taken(program, case.arrays(n)))
            # One that was taken for accepted may not be.
            parts = (
                [leaves_of(part) for part in made.ours(given)]
                if n != case.n or made.refusal(given) is None
                else None
            )
        except Exception:  # noqa: BLE001
            parts = None
        if parts is None:
            for e in accepted:
                _alone(option, case, e, score, way, draw, counted=True, also=others)
            return
        for e, part in zip(accepted, parts, strict=True):
            want = known.results.get((reference, e.name, n))
            if want is not None and difference(part, want, _exact(made, e)) is not None:
                _alone(option, case, e, score, way, draw, counted=True, also=(n,), within=program)


def _accepts(option: str, case: Case, e: Expression, made: Way, score: Score, draw: int) -> bool:
    """Whether jitney does what is asked of an expression. Where it did so of each of its operations
    before, that is seen when it runs.
    """
    score.tried[option] += 1
    if all((option, recipe.text) in _ACCEPTED for recipe in e.recipes):
        return True
    score.told(f"{option} {e.name}")
    try:
        why = made.refusal(made.reshaped(taken(e.program, case.arrays(case.n))))
    except NotFloatingError:
        score.tried[option] -= 1
        return False
    except Exception as error:  # noqa: BLE001
        score.findings.append(_finding("raw", option, case, e, made, _line(error), draw))
        return False
    if why is not None:
        score.refuse(option, e, why)
        return False
    _ACCEPTED.update((option, recipe.text) for recipe in e.recipes)
    return True


_ACCEPTED: set[tuple[str, str]] = set()


def _exact(made: Way, e: Expression) -> Exact:
    return max(made.equal, e.exact, key=("bits", "close", "loose").index)  # type: ignore[return-value,arg-type]


def _alone(
    option: str,
    case: Case,
    e: Expression,
    score: Score,
    way: Callable[[Program], Way | None],
    draw: int,
    counted: bool = False,
    also: Sequence[int] = (),
    within: Any = None,
) -> None:
    """One expression by itself; it is judged here whether a difference is one."""
    made = way(e.program)
    if made is None:
        return
    score.told(f"{option} {e.name} alone")
    if ("pad" in option or option in ALONE) and not also:
        also = (case.other,)  # the same program, another size of its bucket
    for n in dict.fromkeys((case.n, *also)):
        arrays = made.reshaped(taken(e.program, case.arrays(n)))
        try:
            want = leaves_of(made.theirs(arrays))
        except Exception:  # noqa: BLE001
            if n != case.n:
                continue
            return
        if not counted:
            score.tried[option] += 1
            counted = True
        try:
            why = made.refusal(arrays)
            if why is not None:
                score.refuse(option, e, why)
                return
            got = leaves_of(made.ours(arrays))
            got = unblurred(got, want) if made.blurred and len(got) == len(want) else got
        except NotFloatingError:
            score.tried[option] -= 1
            return
        except JITNEY as error:
            score.refuse(option, e, _line(error))
            return
        except Exception as error:  # noqa: BLE001
            if any(known in str(error) for known in XLAS):
                score.refuse(option, e, _line(error))
            else:
                score.findings.append(_finding("raw", option, case, e, made, _line(error), draw, n))
            return
        what = difference(got, want, _exact(made, e))
        if what is None:
            continue
        if difference(got, want, "close") is None:
            score.findings.append(_finding("rounding", option, case, e, made, what, draw, n))
        elif (
            is_unstable(made.theirs, arrays, got, _exact(made, e))
            or is_overflow(made.ours, made.theirs, arrays, got, _exact(made, e))
            or _is_xlas(made, arrays, got, _exact(made, e))
            or _is_rounded_once(made, arrays, got, _exact(made, e))
        ):
            score.unstable[option] += 1
        else:
            score.findings.append(_finding("wrong", option, case, e, made, what, draw, n))
        return
    if within is not None:
        score.findings.append(
            _finding(
                "together",
                option,
                case,
                e,
                made,
                f"only beside {len(within.gives) - 1} others",
                draw,
            )
        )


def _is_xlas(made: Way, arrays: Mapping[str, Any], got: Sequence[Any], exact: Exact) -> bool:
    """Whether plain JAX has our numbers where it runs one operation after the other, or a batch, so
    that it is XLA which makes others of the whole.
    """
    if made.batched and difference(got, leaves_of(made.batched(dict(arrays))), exact) is None:
        return True
    with jax.disable_jit():
        return difference(got, leaves_of(made.theirs(dict(arrays))), exact) is None


def _is_rounded_once(
    made: Way, arrays: Mapping[str, Any], got: Sequence[Any], exact: Exact
) -> bool:
    """Whether ours is what sums of 8-bit floats are that are rounded once, where plain JAX rounds
    them in groups.
    """
    if not any(is_narrow(np.asarray(x).dtype) for x in jax.tree.leaves(dict(arrays))):
        return False

    def theirs(arrays: Mapping[str, Any]) -> Any:
        return rounded_once(made.theirs, arrays)

    close = max(exact, "close", key=("bits", "close", "loose").index)
    try:
        want = leaves_of(theirs(arrays))
        return difference(got, want, close) is None or is_unstable(theirs, arrays, got, close)
    except (TypeError, ValueError, KeyError, NotImplementedError):
        return False  # no trace, or an operation that `_narrow` does not know


def _finding(
    kind: str,
    option: str,
    case: Case,
    e: Expression,
    made: Way,
    what: str,
    draw: int,
    n: int | None = None,
) -> Finding:
    shown = made.shown or e.program
    return Finding(
        kind,
        option,
        what,
        case.seed,
        case.index,
        shown,
        made.code,
        n or case.n,
        case.dtype,
        e.exact,
        draw,
    )


def _line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]
