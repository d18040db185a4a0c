"""Assertions for tests of numerical code: nothing is compiled again, one function is faster than
another, a program's memory stays below a limit.

The fixture `compiles`, the marker `budget` and `--jitney-report` belong to the pytest plugin that
comes with jitney (`pytest_jitney.py`); this module does not need pytest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ._diagnosis.jax_work import Watch, watch
from ._errors import MeasurementWarning, OptionError, format_error, shortlist
from ._interface.optimize import optimize
from ._jax.trees import is_number, keystr, tree_flatten_with_path
from ._measured.arguments import check_calls, put
from ._measured.call_memory import CompiledProgram as CompiledProgram
from ._measured.call_memory import Temporaries as Temporaries
from ._measured.call_memory import peak_of_call
from ._measured.measure import ColdCall, compare_cold_results, names_of, ways_of
from ._measured.verdict import CONFIDENCE, faster
from ._measured.verdict import Faster as Faster
from ._owners import public, users_level
from ._public import public_in

MB = 1e6

for _asserted in (CompiledProgram, Faster, Temporaries):
    public_in(__name__)(_asserted)


@public
def assert_no_recompile(f: Callable[..., object], calls: Iterable[object]) -> Watch:
    """Assert that after the first call of a function no other call traces or compiles anything.

    ```python
    assert_no_recompile(residual, [(x[:n], scale) for n in (5, 6, 7)])
    ```

    Compilations by other threads meanwhile count as well. So does a program loaded from the
    persistent cache, since that is not a warm call.

    Args:
        f: A compiled function, or one that calls compiled functions.
        calls: The arguments of each call: a tuple, a dict by name, or a single argument that is
            neither.
    Returns:
        The work of the first call: what it traced and compiled.
    Raises:
        AssertionError: A later call traced or compiled something. The message names the call and
            the functions, and how its arguments differ from those of the first.
        OptionError: There are fewer than two calls.
    """
    check_calls("assert_no_recompile()", {"f": f}, None)
    given = [_arguments(call) for call in calls]
    if len(given) < _TWO:
        raise OptionError(
            "assert_no_recompile()",
            f"`calls` has {len(given)} calls.",
            "The first may compile, those after it may not.",
            "give two calls or more, each a tuple of arguments.",
            code="J208",
        )
    with watch() as first:
        f(*given[0][0], **given[0][1])

    for number, (args, kwargs) in enumerate(given[1:], 2):
        with watch() as seen:
            f(*args, **kwargs)
        if seen.work:
            what = shortlist([f"{work.name}() at {work.place}" for work in seen.work])
            where, how = (
                f"call {number} of {names_of(f, None)[0]}()",
                _changes(given[0], (args, kwargs)),
            )
            raise AssertionError(
                format_error(
                    where,
                    f"it traced or compiled again: {what}. {how}",
                    "After the first call all others are to find what it compiled.",
                    'give arrays of one shape and dtype (`pad={"n": "pow2"}` takes sizes together),'
                    " and the same static values.",
                )
            )

    return first


_TWO = 2


@public
def assert_faster(
    a: Callable[..., object],
    b: Callable[..., object],
    *args: object,
    by: float = 1.0,
    kwargs: Mapping[str, object] | None = None,
    tolerance: float | None = None,
    tries: int = 3,
    seconds: float = 20.0,
    unknown: Literal["warn", "fail"] = "warn",
) -> Faster:
    """Assert that one function is faster than another by a factor, and computes the same results.

    Both are called as in `jitney.measure`: the results are compared first, then warm calls
    alternate, each waited for. After 16, 32 and 64 rounds the interval that contains the median
    ratio with 99 % confidence is inspected. If it lies above `by` the test passes; if it lies below
    `by` by 2 % or more, the next try begins. The test fails if all tries end so. Otherwise the
    outcome is unknown, which is a warning.

    Args:
        a: The function that should be faster.
        b: The function to compare with.
        *args: Arguments of both.
        by: Factor by which `a` should be faster.
        kwargs: Arguments by name, for both.
        tolerance: How far the results may be apart, as in `jitney.measure`; `math.inf` skips the
            comparison.
        tries: Number of measurements that have to agree on a failure.
        seconds: Time after which no rounds are added, beyond 16 for each try.
        unknown: "fail" turns an unknown outcome into a failure.
    Raises:
        AssertionError: It is not faster.
        VerificationError: The results differ.
        OptionError: An option makes no sense.
    """
    check_calls("assert_faster()", {"a": a, "b": b}, kwargs)
    _check("assert_faster()", by=by, tries=tries, seconds=seconds)
    if unknown not in ("warn", "fail"):
        raise OptionError(
            "assert_faster()",
            f"unknown={unknown!r} is not known.",
            'It is "warn" or "fail".',
            "correct or remove it.",
            code="J208",
        )
    given = put(args, dict(kwargs or {}), on_device=True)
    names = names_of(a, b)
    sides = ColdCall(a, names[0], given), ColdCall(b, names[1], given)
    compare_cold_results(*sides, tolerance)
    found = faster(
        ways_of(sides),
        float(by),
        int(tries),
        float(seconds),
    )
    if found.outcome == "yes":
        return found
    between = (
        f"between {found.low:.3g} and {found.high:.3g} times as fast as {names[1]}, with"
        f" {CONFIDENCE:.0%} confidence"
    )
    where = f"assert_faster({names[0]}, {names[1]}, by={by:g})"
    # All tries agree that `a` misses the factor.
    if found.outcome == "no":
        rule = (
            f"{found.tries} measurements of {found.rounds} rounds or more, in turn, all found it"
            " slower than that."
        )
        raise AssertionError(
            format_error(
                where, f"{names[0]} is {between}.", rule, "make it faster, or ask for less."
            )
        )
    # The interval contains `by` or is too close to it, so neither outcome is shown.
    text = format_error(
        where,
        f"it is unknown: {names[0]} is {between}.",
        f"After {found.rounds} rounds that is on neither side of {by:g}.",
        "ask for less, give it longer work or more `seconds`, or measure where less else runs.",
    )
    if unknown == "fail":
        raise AssertionError(text)
    warnings.warn(text, MeasurementWarning, stacklevel=users_level())
    return found


@public
def assert_memory(
    f: Callable[..., object],
    *args: object,
    temp_mb: float | None = None,
    peak_mb: float | None = None,
    kwargs: Mapping[str, object] | None = None,
) -> int:
    """Assert that the temporaries of a program, as XLA plans them, are at most this large, or that
    a call takes at most so much memory.

    Temporaries are the memory besides arguments and results, and nothing is run for them.

    With `peak_mb` the function is called twice, so it must not donate its arguments. The first call
    may compile; of the second the peak is measured, with its results and with all that the plan
    does not know: buffers in the kernels of a backend, other libraries, Python. On a CPU it is what
    the process holds more than before, else what a device does. The peak is counted on Linux, and
    on devices that report their memory; elsewhere it is known only between two limits, and the
    outcome may be unknown, which is a `MeasurementWarning`.

    Args:
        f: A decorated function, one under `jax.jit`, or any other, which is decorated for
            `temp_mb`.
        *args: Its arguments; for `temp_mb` also `jax.ShapeDtypeStruct`s.
        temp_mb: Limit of the temporaries in megabytes, of 10^6 bytes, on one device.
        peak_mb: Limit of the measured peak in megabytes.
        kwargs: Arguments by name.
    Returns:
        Size of the temporaries in bytes, or with `peak_mb` the measured peak.
    Raises:
        AssertionError: They are larger.
        OptionError: XLA gives no analysis for this device, nothing reports the memory of this
            process, or a limit is not a size.
    """
    check_calls("assert_memory()", {"f": f}, kwargs)
    limits = {"temp_mb": temp_mb, "peak_mb": peak_mb}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        raise OptionError(
            "assert_memory()",
            "it has no limit.",
            "One of `temp_mb` and `peak_mb` is needed.",
            "give temp_mb=50.",
            code="J208",
        )
    _check("assert_memory()", **given)
    took = 0 if temp_mb is None else _hold_temporaries(f, args, kwargs or {}, temp_mb)
    return took if peak_mb is None else _hold_peak(f, args, kwargs or {}, peak_mb)


def _hold_temporaries(
    f: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    temp_mb: float,
) -> int:
    lowers: Any = f if hasattr(f, "lower") else optimize(f, contracts=False)
    compiled = lowers.lower(*args, **kwargs).compile()

    # Equinox wraps JAX's compiled program.
    stats = getattr(compiled, "compiled", compiled).memory_analysis()
    name = names_of(f, None)[0]
    if stats is None:
        raise OptionError(
            f"assert_memory({name})",
            "XLA does not say how much memory it takes.",
            "Not every device has an analysis.",
            "leave the test out for this one.",
            code="J208",
        )
    took = int(stats.temp_size_in_bytes)
    if took > temp_mb * MB:
        raise AssertionError(
            format_error(
                f"assert_memory({name})",
                f"its temporaries take {took / MB:.4g} MB, where {temp_mb:g} are allowed.",
                "Temporaries are what XLA plans besides arguments and results.",
                "cut an axis (`chunk=` or `memory=`), recompute in the backward pass (`remat=`), or"
                " allow more.",
            )
        )
    return took


def _hold_peak(
    f: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    peak_mb: float,
) -> int:
    where = f"assert_memory({names_of(f, None)[0]})"
    took = peak_of_call(lambda: f(*args, **kwargs))
    if took is None:
        raise OptionError(
            where,
            "nothing reports how much memory the process holds.",
            "It is read from Linux's /proc, from `getrusage`, or by psutil.",
            "python -m pip install psutil",
            code="J208",
        )
    rule = f"Measured is what {took.of} held at its peak more than before the call."
    fix = "cut an axis (`chunk=` or `memory=`), return less, or allow more."
    if took.least > peak_mb * MB:
        what = f"a call takes {took.least / MB:.4g} MB, where {peak_mb:g} are allowed."
        raise AssertionError(format_error(where, what, rule, fix))
    if took.most is None or took.most > peak_mb * MB:
        most = "an unknown size" if took.most is None else f"{took.most / MB:.4g} MB"
        what = f"it is unknown: a call takes between {took.least / MB:.4g} MB and {most}."
        rule = "The system knows the peak since the start alone, and there was a higher one before."
        fix = "run the test in a process of its own, or on Linux."
        text = format_error(where, what, rule, fix)
        warnings.warn(text, MeasurementWarning, stacklevel=users_level())
    return took.least


def _arguments(call: object) -> tuple[tuple[object, ...], dict[str, object]]:
    if isinstance(call, tuple):
        return call, {}
    return ((), call) if isinstance(call, dict) else ((call,), {})


def _changes(first: object, later: object) -> str:
    """Short description of how the arguments of two calls differ."""
    (a, built), (b, rebuilt) = (tree_flatten_with_path(arguments) for arguments in (first, later))
    if built != rebuilt:
        return "Its arguments are built differently from those of the first call."
    changed: list[str] = []
    for (path, x), (_, y) in zip(a, b, strict=True):
        was, now = _kind(x), _kind(y)
        if was != now:
            changed.append(f"{keystr(path[1:])} was {was} and is {now}")
    return (
        f"Of its arguments {shortlist(changed)}."
        if changed
        else "Its arguments are of the same kinds as those of the first call."
    )


def _kind(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return repr(leaf)
    return f"{leaf.dtype}{list(leaf.shape)}" + (
        " (weak)" if getattr(leaf, "weak_type", False) else ""
    )


def _check(where: str, **options: float) -> None:
    for name, value in options.items():
        if not is_number(value) or not 0 < value < math.inf:
            raise OptionError(
                where,
                f"{name}={value!r} makes no sense.",
                "It is a positive number.",
                f"correct `{name}`.",
                code="J208",
            )


__all__: Sequence[str] = (
    "CompiledProgram",
    "Faster",
    "Temporaries",
    "assert_faster",
    "assert_memory",
    "assert_no_recompile",
)


def __dir__() -> list[str]:
    return sorted(__all__)
