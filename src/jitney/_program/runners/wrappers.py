"""Wrappers of compiled functions: each adds what one option needs around a call.

A program without such an option runs its `jax.jit`-ed function directly. `outermost_runner` is the
entry point: from the inside out, captured arrays, checks of Equinox, `compiler`, `cache`,
`debug_nans`, `precision="f64"`. The caller knows where the call stands (`_body/placed_calls.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from operator import attrgetter

import jax
from jax.core import Tracer

from ..._body.body import CallPlanner
from ..._body.call_key import trace_key
from ..._checks import Unflaggable
from ..._diagnosis.nonfinite.interpreter import locate
from ..._diagnosis.nonfinite.marked_values import has_nonfinite
from ..._diagnosis.nonfinite.message import lanes_text, message
from ..._errors import NonFiniteError
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.compile_cache.cache import pause_cache as cache_disabled
from ..._jax.equinox_checks import has_equinox_checks
from ..._jax.settings import x64_is_on
from ..._jax.tracing import is_staged
from ..._jax.typed import Jitted
from ..._jax.xla.compiler import options_of
from ..._stages import Vmap
from ..._view.layout import is_nested_trace
from ..._view.true_sizes import split_counts
from ..outer_transforms import warn_missing_checks
from .captured_calls import captured_calls, note_captured
from .checked_calls import Run, checked_calls
from .in_32_bits import as_typed, check_lowering

_aval_of = attrgetter("shape", "dtype", "weak_type")


def outermost_runner(
    body: CallPlanner,
    arrays: Sequence[object],
    jitted: Jitted,
) -> Run:
    """Return the function that runs the calls of an outermost program, with jit on."""
    return around(body, jitted, runner_inside(body, arrays, jitted))


def nested_runner(body: CallPlanner, jitted: Jitted) -> Run:
    """Return the function that runs the calls that an outer transform owns."""
    ensure_cache()
    return _in_x64(body, jitted, jitted) if body.options.precision == "f64" else jitted


def jitless_runner(body: CallPlanner, jitted: Jitted) -> Run:
    """Return the function that runs the calls with jit off: each runs the body, and to trace it
    here would run it once more.
    """
    return around(body, jitted, jitted)


def runner_inside(
    body: CallPlanner,
    arrays: Sequence[object],
    jitted: Jitted,
) -> Run:
    """Return the function that runs the calls of an outermost program, without what `around`
    adds.
    """
    options = body.options
    ensure_cache()
    run: Run = jitted
    if not body.checked:
        # A trace that JAX caches: the call itself finds it.
        with body.numbers():
            traced = jitted.trace(*arrays).jaxpr
        if has_equinox_checks(traced):
            body.note_checks()
        note_captured(body, traced)
    if body.checked:
        run = checked_calls(body, jitted)
    elif body.captures:
        run = captured_calls(body, jitted)
    if options_of(options.compiler):
        run = _with_options(jitted, run)
    if not options.cache:
        run = _without_cache(run)
    return run


def around(
    body: CallPlanner,
    jitted: Jitted,
    run: Run,
) -> Run:
    """Add to a runner of whole calls what acts on their arguments and results."""
    options = body.options
    if options.debug_nans:
        run = _finite(body, jitted, run)
    return _in_x64(body, jitted, run) if options.precision == "f64" else run


def lower_as_run(
    body: CallPlanner,
    arrays: Sequence[object],
    jitted: Jitted,
) -> jax.stages.Lowered:
    """Return JAX's lowered program of these arrays or abstract values, as calls run it."""
    traced = jitted.trace(*arrays)
    note_captured(body, traced.jaxpr)
    if not body.request.nested and has_equinox_checks(traced.jaxpr):
        body.note_checks()

        # A program that keeps its callbacks is lowered as it is.
        with suppress(Unflaggable):
            return checked_calls(body, jitted).lower(*arrays)
    elif body.captures:
        return captured_calls(body, jitted).lower(*arrays)
    return traced.lower()


def _in_x64(
    body: CallPlanner,
    jitted: Jitted,
    run: Run,
) -> Run:
    def in_x64(*arrays: object) -> object:
        # Check here, where the message can name the function: JAX lowers it with the setting of the
        # outer `jit` (`in_32_bits.py`).
        if is_nested_trace(arrays) and not x64_is_on():
            if is_staged():
                check_lowering(body, arrays, jitted)
            arrays = as_typed(arrays)
        with jax.enable_x64(True):  # noqa: FBT003
            return run(*arrays)

    return in_x64


def _without_cache(run: Run) -> Run:
    """Compile without the persistent cache: the first call of each set of shapes runs in that
    scope.
    """
    seen: set[Hashable] = set()

    def uncached(*arrays: object) -> object:
        # The attributes of arrays on devices take a third of the time of `trace_key`.
        try:
            key: Hashable = tuple(map(_aval_of, arrays))
        except AttributeError:
            key = trace_key(*split_counts(arrays))
        if key in seen:
            return run(*arrays)
        with cache_disabled():
            out = run(*arrays)
        seen.add(key)
        return out

    return uncached


def _with_options(jitted: Jitted, run: Run) -> Run:
    """Pass compiler options, unless the call turns out to be inside another `jit`.

    Compiler options belong to the outermost `jit`. A call without any tracer among its arguments
    shows only by JAX's error that it is not the outermost.
    """
    plain: Run = jitted.__wrapped__

    def outermost(*arrays: object) -> object:
        try:
            return run(*arrays)
        except ValueError as error:
            if "compiler_options" not in str(error) or "top-level" not in str(error):
                raise
        return plain(*arrays)

    return outermost


def _finite(
    body: CallPlanner,
    jitted: Jitted,
    run: Run,
) -> Run:
    """Check every result for NaN and infinity; if one is found, rerun operation by operation to
    locate the first that produced it.
    """

    def finite(*arrays: object) -> object:
        out = run(*arrays)
        leaves = [leaf for leaf in jax.tree.leaves(out) if isinstance(leaf, jax.Array)]
        # The arguments may be numbers inside of an outer trace, so the results decide.
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            warn_missing_checks(body)
        elif has_nonfinite(leaves):
            finding = locate(jitted.trace(*arrays).jaxpr, list(arrays), leaves)
            # Without a finding the infinities came in with the arguments.
            if finding is not None:
                lanes = ""
                if body.core.options.vmap:
                    vmap = body.plan_call(arrays, jit=False).plan.of(Vmap)
                    if vmap is not None:
                        lanes = lanes_text(finding.kind, vmap.axes, leaves)
                raise NonFiniteError(message(finding, body.core.where, body.paths, lanes))
        return out

    return finite
