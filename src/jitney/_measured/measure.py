"""`jitney.measure`: seconds of a call, and whether one function is faster than another.

The steps: put the arguments on the device, call each function once (cold), compare the results,
time warm calls in turn, and return the verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax

from .._diagnosis.jax_work import watch
from .._errors import OptionError, plural
from .._jax.devices import LocalDevice
from .._jax.trees import is_number
from .._jax.xla.memory import text as bytes_text
from .._owners import public
from .._public import public_in
from .._text.json import Data
from .._text.shown import Shown
from .arguments import Put, check_calls, move, name_of, on, put, read_devices
from .checked_results import is_constant, largest_difference
from .rounds import Side, rounds
from .verdict import CONFIDENCE, Verdict, judge_ratios, quartiles

if TYPE_CHECKING:
    from rich.table import Table

LEAST, MOST = 16, 200


@public_in("jitney.types")
@dataclass(frozen=True)
class Timing:
    """Seconds of the calls of one function.

    Args:
        name: The function.
        first_seconds: Seconds of the first call, until its result was there: tracing, lowering,
            compiling and running.
        work_seconds: Its part of tracing, lowering, and compiling or reading the persistent cache.
        compiles: Number of programs that it compiled; 0, without hits, if it had been called
            before.
        cache_hits: Number of programs from the persistent cache instead.
        seconds: Seconds of a warm call until its result was there, round by round.
        calls: Number of calls whose mean is one of these.
        copies: True if each call got copies of its arguments, made untimed, because it or the other
            function donates them.
        constant: True if it is compiled, and no result depends on an array among its arguments.
    """

    name: str
    first_seconds: float
    work_seconds: float
    compiles: int
    cache_hits: int
    seconds: tuple[float, ...]
    calls: int
    copies: bool
    constant: bool = False

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Quartiles of the seconds of a warm call: the first, the median, the third."""
        return quartiles(self.seconds)

    @property
    def median(self) -> float:
        """Median seconds of a warm call."""
        return self.quartiles[1]

    @property
    def is_new(self) -> bool:
        """True if a program was compiled or read from the cache for the first call."""
        return self.compiles + self.cache_hits > 0

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        return {**vars(self), "seconds": list(self.seconds), "quartiles": list(self.quartiles)}


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Measurement(Shown):
    """Result of `jitney.measure`.

    Args:
        of: Timing of the function.
        against: Timing of the function that it was compared with, if any.
        verdict: Verdict on the two; None without a second function.
        apart: Difference of the results, relative to the largest element.
        transfer_seconds: Seconds of bringing arguments from the host to the device, once, before;
            part of no other figure.
        transfer_bytes: Bytes of these arguments.
        transfer_arrays: Number of these arrays.
        devices: With `devices=`, the measurement on each, in their order: `of` there, `against` the
            first of them. This one is of the first.
    """

    of: Timing
    against: Timing | None
    verdict: Verdict | None
    apart: float | None
    transfer_seconds: float
    transfer_bytes: int
    transfer_arrays: int
    devices: tuple[Measurement, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ratio of the other function's time to this one's, round by round."""
        if self.against is None:
            return ()
        return tuple(b / a for a, b in zip(self.of.seconds, self.against.seconds, strict=True))

    @property
    def repaid_after(self) -> int | None:
        """Number of warm calls after which the function has saved the seconds that its tracing,
        lowering and compiling took beyond those of the other.

        By the medians of this measurement: the seconds are those of the first calls in it, from the
        persistent cache if the program was there. None where that is not known: without another
        function, where the verdict is not "faster", and where the function was compiled before.
        """
        if self.against is None or self.verdict is None or self.verdict.outcome != "faster":
            return None
        if not self.of.is_new:
            return None
        cost = self.of.work_seconds - self.against.work_seconds
        return max(0, math.ceil(cost / (self.against.median - self.of.median)))

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        return {
            **vars(self),
            "repaid_after": self.repaid_after,
            "of": self.of.to_dict(),
            "against": None if self.against is None else self.against.to_dict(),
            "verdict": (
                None if self.verdict is None else {**vars(self.verdict), "text": str(self.verdict)}
            ),
            "ratios": list(self.ratios),
            "devices": [each.to_dict() for each in self.devices],
        }

    def __rich__(self) -> Table:
        from .._text.console import figures

        sides = [self.of, *([self.against] if self.against is not None else [])]
        sides += [each.of for each in self.devices[1:]]
        low = tuple(side.quartiles[0] for side in sides)
        high = tuple(side.quartiles[2] for side in sides)
        rows = [
            ("", "", *(side.name for side in sides)),
            ("first call", "all of it", *(_time(side.first_seconds) for side in sides)),
            ("", "trace, lower, compile", *(_time(side.work_seconds) for side in sides)),
            ("", "programs", *(_programs(side) for side in sides)),
            ("warm call", "median", *(_time(side.median) for side in sides)),
            (
                "",
                "quartiles",
                *(f"{_time(a)} to {_time(b)}" for a, b in zip(low, high, strict=True)),
            ),
            ("", "rounds of calls", *(f"{len(side.seconds)} of 2x{side.calls}" for side in sides)),
        ]
        if any(side.copies for side in sides):
            rows.append(("", "arguments", *("copied, untimed" for _ in sides)))
        if self.transfer_arrays:
            what = (
                f"{plural(self.transfer_arrays, 'array')} of {bytes_text(self.transfer_bytes)},"
                " before"
            )
            rows.append(("to the device", what, _time(self.transfer_seconds)))
        if self.verdict is not None and self.verdict.outcome == "faster":
            rows.append(("what it compiled", "repaid after", self._repaid()))
        if len(self.devices) > 1:
            rows += self._beside_first()
        if self.apart is not None:
            rows.append(("results", "apart by, of the largest", f"{self.apart:.1e}"))
        notes = [f"{side.name}: {_CONSTANT}" for side in sides if side.constant]
        return figures("\n".join([self.title, *notes]), rows)

    def _beside_first(self) -> list[tuple[str, ...]]:
        others = self.devices[1:]
        apart = ("" if each.apart is None else f"{each.apart:.1e}" for each in others)
        return [
            ("to the device", "before", *(_time(each.transfer_seconds) for each in self.devices)),
            ("results", "apart from the first", "", *apart),
            ("verdict", "beside the first", "", *(str(each.verdict) for each in others)),
        ]

    def _repaid(self) -> str:
        calls = self.repaid_after
        return "unknown: it was compiled before" if calls is None else plural(calls, "call")

    @property
    def title(self) -> str:
        """Verdict as a sentence."""
        if len(self.devices) > 1:
            best = min(self.devices, key=lambda each: each.of.median)
            return f"{best.of.name} takes {_time(best.of.median)}, the least by the median"
        if self.against is None or self.verdict is None:
            return f"{self.of.name} takes {_time(self.of.median)}"
        told = f"{self.of.name}, against {self.against.name}: {self.verdict}"
        return f"{told}, with {CONFIDENCE:.0%} confidence" if self.verdict.low else told


class ColdCall:
    """Function with its arguments; the constructor calls it once, and records time and work."""

    def __init__(self, f: Callable[..., object], name: str, given: Put):
        self.name = name
        self.f = f
        self._given = given
        # A copy, so that a donating function leaves the given arrays alive; `is_donated` shows
        # whether it donates.
        own = given.copy()
        start = time.perf_counter()
        with watch() as seen:
            self.result: Any = jax.block_until_ready(f(*own.args, **own.kwargs))
        self.first_seconds = time.perf_counter() - start
        self.work = seen
        self.donates = own.is_donated

    def way(self, *, copies: bool) -> Side:
        """Return its warm calls, each with copies of the arguments if a function donates."""
        return (
            Side(prepare=lambda: _bind_arguments(self.f, self._given.copy()))
            if copies
            else Side(_bind_arguments(self.f, self._given))
        )

    def timing(self, seconds: tuple[float, ...], way: Side) -> Timing:
        work = self.work
        first = (self.first_seconds, work.seconds, work.compiles, work.cache_hits)
        return Timing(
            self.name,
            *first,
            seconds,
            way.calls,
            way.needs_preparation,
            is_constant(self.f, self._given),
        )


@public
def measure(
    f: Callable[..., object],
    *args: object,
    against: Callable[..., object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    tolerance: float | None = None,
    seconds: float = 2.0,
    rounds: int = LEAST,
    on_device: bool = True,
    devices: Sequence[object] | None = None,
) -> Measurement:
    """Time a call, and decide whether it is faster than another function that computes the same.

    ```python
    print(jitney.measure(residual, model, t, y, against=jax.jit(plain)))
    ```

    Arguments that are NumPy arrays are put on the device before, which is timed apart. Each
    function is called once (cold: its compiling is timed apart), and their results are compared.
    Then both are called warm, in turn, A B B A, and each result is waited for. The verdict is on
    the ratios round by round: the interval that contains their median with 99 % confidence, by the
    sign test. It is "faster" or "slower" if the interval lies beyond 1 by more than 2 %, "no
    difference" if it lies within 5 % of 1, and "unknown" otherwise.

    Functions are called as they are: a function that is not compiled is measured uncompiled.
    Waiting for a result takes microseconds, which both have in their times. Arguments that a
    function donates are copied for each call of both, untimed.

    Args:
        f: Function to measure.
        *args: Its arguments.
        against: Function that computes the same, for a verdict.
        kwargs: Keyword arguments, for both.
        tolerance: Largest difference of the results, relative to the largest element of each array.
            By default 1e-5 for float32, 1e-11 for float64, and 0.02 for 16 bits; results without
            rounding have to be equal. `math.inf` compares nothing.
        seconds: Time for the warm calls, if that leaves enough rounds.
        rounds: Minimum of rounds, even if they take longer: 8 are needed for a verdict.
        on_device: False leaves NumPy arrays on the host, so that each call includes their transfer.
        devices: Devices of this process to call the function on, in turn: those of JAX, or names
            such as "cpu:0" and "gpu:1". The arguments are put on each. Results are compared with
            those on the first, and verdicts are beside the first, under `devices` of the result.
    Raises:
        VerificationError: The results differ.
        OptionError: An option is not valid, or an argument has no value.
    """
    check_calls(
        "jitney.measure()", {"f": f} | ({} if against is None else {"against": against}), kwargs
    )
    _check(seconds=seconds, rounds=rounds, tolerance=tolerance, on_device=on_device)

    if devices is not None:
        chosen = read_devices(devices, against, on_device=on_device)
        given = put(args, dict(kwargs or {}), on_device=False)
        return _on_devices(f, given, chosen, tolerance, (rounds, seconds))

    # Cold calls, one function after the other, and their results compared.
    given = put(args, dict(kwargs or {}), on_device=on_device)
    names = names_of(f, against)
    ours = ColdCall(f, names[0], given)
    theirs = None if against is None else ColdCall(against, names[1], given)
    off = None if theirs is None else compare_cold_results(ours, theirs, tolerance)

    # Warm calls in turn; a column has the seconds of one function.
    sides = [ours, *([theirs] if theirs is not None else [])]
    ways = ways_of(sides)
    columns = list(zip(*_rounds(ways, rounds, max(rounds, MOST), seconds), strict=True))
    timings = [
        side.timing(times, way) for side, times, way in zip(sides, columns, ways, strict=True)
    ]
    other = timings[1] if theirs is not None else None
    verdict = (
        None if other is None else judge_ratios([b / a for a, b in zip(*columns, strict=True)])
    )
    return Measurement(
        timings[0],
        other,
        verdict,
        off,
        given.seconds,
        given.size,
        given.arrays,
    )


# `measure` has an option of the name `rounds`.
_rounds = rounds


def _on_devices(
    f: Callable[..., object],
    given: Put,
    devices: Sequence[LocalDevice],
    tolerance: float | None,
    how_long: tuple[int, float],
) -> Measurement:
    """Time a function on several devices in turn, once its results there are found to be equal."""
    name, (least, seconds) = names_of(f, None)[0], how_long
    places = [name_of(device) for device in devices]
    puts = [move(given, device) for device in devices]
    sides = [
        ColdCall(on(device, f), f"{name} on {place}", there)
        for device, place, there in zip(devices, places, puts, strict=True)
    ]
    results = [side.result for side in sides]
    for side in sides:
        side.result = None
    apart = [
        None
        if tolerance == math.inf
        else largest_difference(results[0], result, (sides[0].name, side.name), tolerance)
        for result, side in zip(results, sides, strict=True)
    ]
    del results

    ways = ways_of(sides)
    columns = list(zip(*_rounds(ways, least, max(least, MOST), seconds), strict=True))
    timings = [
        side.timing(times, way) for side, times, way in zip(sides, columns, ways, strict=True)
    ]
    found = [Measurement(timings[0], None, None, None, puts[0].seconds, 0, 0)]
    for timing, off, there in zip(timings[1:], apart[1:], puts[1:], strict=True):
        pairs = zip(timing.seconds, timings[0].seconds, strict=True)
        verdict = judge_ratios([first / here for here, first in pairs])
        found.append(Measurement(timing, timings[0], verdict, off, there.seconds, 0, 0))
    return replace(found[0], devices=tuple(found))


def ways_of(sides: Sequence[ColdCall]) -> list[Side]:
    """Return the warm calls of functions.

    If one function donates its arguments all get copies, since single calls take longer than calls
    in a row.
    """
    copies = any(side.donates for side in sides)
    return [side.way(copies=copies) for side in sides]


def compare_cold_results(
    ours: ColdCall,
    theirs: ColdCall,
    tolerance: float | None,
) -> float | None:
    """Return the difference of the first results, and release them; None if nothing is compared.

    Raises:
        VerificationError: The difference exceeds the tolerance.
    """
    results = ours.result, theirs.result
    # Released before the warm calls, so that their memory is free.
    ours.result = theirs.result = None
    return (
        None
        if tolerance == math.inf
        else largest_difference(*results, (ours.name, theirs.name), tolerance)
    )


def _bind_arguments(f: Callable[..., object], given: Put) -> Callable[[], object]:
    # Without keywords the call has no `**`, whose cost would be measured too.
    args, kwargs = given.args, given.kwargs
    return (lambda: f(*args, **kwargs)) if kwargs else (lambda: f(*args))


def names_of(f: object, against: object) -> tuple[str, str]:
    """Return distinct names of two functions."""
    first, second = (
        getattr(each, "__name__", None) or type(each).__name__ for each in (f, against)
    )
    return (first, second) if first != second else (f"{first} (1)", f"{second} (2)")


def _check(
    *,
    seconds: Any,
    rounds: object,
    tolerance: Any,
    on_device: object,
) -> None:
    wrong = None
    if not is_number(seconds) or seconds <= 0:
        wrong = (
            f"seconds={seconds!r} is not a time.",
            "It is a positive number of seconds.",
            "write `seconds=2.0`.",
        )
    elif not isinstance(rounds, int) or rounds < 1:
        wrong = (
            f"rounds={rounds!r} is not a number of rounds.",
            "It is a positive int; 8 are needed for a verdict.",
            "write `rounds=16`.",
        )
    elif tolerance is not None and (not is_number(tolerance) or not tolerance >= 0):
        wrong = (
            f"tolerance={tolerance!r} is none.",
            "It is a part of the largest element, 0 or more.",
            "write `tolerance=1e-4`.",
        )
    elif not isinstance(on_device, bool):
        wrong = (
            f"on_device={on_device!r} is neither.",
            "It is True or False.",
            "write `on_device=False`, or leave it out.",
        )
    if wrong is not None:
        raise OptionError("jitney.measure()", *wrong, code="J208")


def _programs(side: Timing) -> str:
    if not side.is_new:
        return "none new"
    return f"{side.compiles} compiled" + (f", {side.cache_hits} cached" if side.cache_hits else "")


def _time(seconds: float) -> str:
    unit, size = next((pair for pair in _UNITS if seconds >= pair[1]), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


_CONSTANT = (
    "no result depends on an array that it is given, so XLA may compute all of it once, while"
    " compiling, and a warm call copies a constant. Pass what it is computed from as an argument."
)
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
