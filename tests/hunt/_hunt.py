"""One case from end to end: draw it, run it under options, compare, and say what fell."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import jitney

from ._draw import Case, Expression, drawn
from ._judge import difference, is_unstable, leaves_of, unblurred
from ._options import OPTIONS, NotFloatingError, Way
from ._program import Program, joined
from ._recipe import Exact

FEW = 3  # expressions of a case under an option that takes one at a time
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
    reasons: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # of operations by themselves

    def refuse(self, option: str, expression: Expression, why: str) -> None:
        self.refused[option] += 1
        if len(expression.recipes) == 1:
            self.reasons.setdefault(f"{option}: {expression.recipes[0].text}", set()).add(why)


class _NotPlainError(Exception):
    """Plain JAX cannot run it either."""


def hunt(seed: int, index: int, only: Iterable[str] = (), most: int = 4, told: Callable[[str], None] = lambda text: None) -> Score:
    """Run the case of a seed and an index."""
    case = drawn(seed, index)
    score = Score()
    told(f"{case.dtype} {case.flavour} n={case.n}")
    with case.numbers(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rng = np.random.default_rng([seed, index, 2])
        names = [name for name in OPTIONS if not only or name in only]
        shares = np.array([OPTIONS[name].share for name in names])
        chosen = rng.choice(len(names), min(most, len(names)), replace=False, p=shares / shares.sum())
        arrays = case.arrays(case.n)
        cases = _Plain(case, arrays)
        for k in sorted(chosen):
            told(names[k])
            _under(names[k], case, cases, score, int(rng.integers(2**31)))
    return score


class _Plain:
    """What plain JAX makes of the expressions of a case, by reference; those that it cannot run are left out."""

    def __init__(self, case: Case, arrays: dict[str, Any]):
        self.case, self.arrays = case, arrays
        self.results: dict[tuple[str, str, int], list[Any] | None] = {}

    def fill(self, way: Callable[[Program], Way], expressions: Sequence[Expression], n: int) -> None:
        """The results of several expressions in one program; of each by itself if that fails."""
        missing = [e for e in expressions if (way(e.program).reference, e.name, n) not in self.results]
        for group in (missing, *([e] for e in missing)):
            if not group:
                continue
            program = joined([e.program for e in group])
            one = way(program)
            if len(group) == 1 and (one.reference, group[0].name, n) in self.results:
                continue
            arrays = one.reshaped(taken(program, self.case.arrays(n)))
            try:
                out = one.theirs(arrays)
                parts = _parts(out, group, program)
            except Exception:  # noqa: BLE001
                if len(group) == 1:
                    self.results[one.reference, group[0].name, n] = None
                continue
            for e, part in zip(group, parts, strict=True):
                self.results[one.reference, e.name, n] = part


def taken(program: Program, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays[name] for name, _ in program.takes}


def _parts(out: Any, group: Sequence[Expression], program: Program) -> list[list[Any]]:
    """The leaves that belong to each expression. A flat list of leaves can only be that of one."""
    if isinstance(out, tuple) and len(out) == len(group):
        return [leaves_of(part) for part in out]
    if len(group) == 1:
        return [leaves_of(out)]
    shapes = [len(jax.tree.leaves(jax.eval_shape(lambda e=e: None))) for e in group]
    raise ValueError(f"{shapes}")


def _under(option: str, case: Case, known: _Plain, score: Score, draw: int) -> None:
    """All expressions of a case under one option."""

    def way(program: Program) -> Way | None:
        return OPTIONS[option].make(np.random.default_rng(draw), program.compiled(), program, case.n)

    if OPTIONS[option].together:
        _together(option, case, known, score, way, draw)
        return
    at = draw % max(len(case.expressions), 1)
    for e in (case.expressions[at:] + case.expressions[:at])[:FEW]:
        _alone(option, case, e, score, way, draw)


def _together(option: str, case: Case, known: _Plain, score: Score, way: Callable[[Program], Way | None], draw: int) -> None:
    able = [e for e in case.expressions if way(e.program) is not None]
    if not able:
        return
    if way(able[0].program).reference == "f64":  # type: ignore[union-attr]
        for e in able:
            _alone(option, case, e, score, way, draw)
        return
    known.fill(way, able, case.n)  # type: ignore[arg-type]
    reference = way(able[0].program).reference  # type: ignore[union-attr]
    able = [e for e in able if known.results.get((reference, e.name, case.n)) is not None]
    accepted = []
    for e in able:
        made = way(e.program)
        arrays = made.reshaped(taken(e.program, known.arrays))
        try:
            why = made.refusal(arrays)
        except NotFloatingError:
            continue
        except Exception as error:  # noqa: BLE001
            score.tried[option] += 1
            score.findings.append(_finding("raw", option, case, e, made, _line(error), draw))
            continue
        score.tried[option] += 1
        if why is not None:
            score.refuse(option, e, why)
        else:
            accepted.append(e)
    if not accepted:
        return
    for n in dict.fromkeys((case.n, case.other) if "pad" in option else (case.n,)):
        program = joined([e.program for e in accepted])
        made = way(program)
        try:
            known.fill(way, accepted, n)  # type: ignore[arg-type]
            if n == case.n:
                keep = made
            out = keep.ours(made.reshaped(taken(program, case.arrays(n))))
            parts = [leaves_of(part) for part in out]
        except Exception:  # noqa: BLE001
            for e in accepted:
                _alone(option, case, e, score, way, draw, counted=True)
            return
        for e, part in zip(accepted, parts, strict=True):
            want = known.results.get((reference, e.name, n))
            if want is not None and difference(part, want, _exact(made, e)) is not None:
                _alone(option, case, e, score, way, draw, counted=True, also=(n,), within=(program, part))


def _exact(made: Way, e: Expression) -> Exact:
    return max(made.equal, e.exact, key=("bits", "close", "loose").index)  # type: ignore[return-value,arg-type]


def _alone(
    option: str, case: Case, e: Expression, score: Score, way: Callable[[Program], Way | None], draw: int,
    counted: bool = False, also: Sequence[int] = (), within: Any = None,
) -> None:  # fmt: skip
    """One expression by itself; it is judged here whether a difference is one."""
    made = way(e.program)
    if made is None:
        return
    for n in dict.fromkeys((case.n, *also)):
        arrays = made.reshaped(taken(e.program, case.arrays(n)))
        try:
            want = leaves_of(made.theirs(arrays))
        except Exception:  # noqa: BLE001
            if counted and not n == case.n:
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
            score.findings.append(_finding("raw", option, case, e, made, _line(error), draw, n))
            return
        what = difference(got, want, _exact(made, e))
        if what is None:
            continue
        if difference(got, want, "close") is None:
            score.findings.append(_finding("rounding", option, case, e, made, what, draw, n))
        elif is_unstable(made.theirs, arrays, got, _exact(made, e)):
            score.unstable[option] += 1
        else:
            score.findings.append(_finding("wrong", option, case, e, made, what, draw, n))
        return
    if within is not None:
        program, _ = within
        score.findings.append(_finding("together", option, case, e, made, f"only beside {len(program.gives) - 1} others", draw))


def _finding(kind: str, option: str, case: Case, e: Expression, made: Way, what: str, draw: int, n: int | None = None) -> Finding:
    shown = made.shown or e.program
    return Finding(kind, option, what, case.seed, case.index, shown, made.code, n or case.n, case.dtype, e.exact, draw)


def _line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]
