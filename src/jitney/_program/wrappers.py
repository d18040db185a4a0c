"""How a compiled function is called, where more than calling it is asked for. Each wraps a call in
what one option needs.

A program without such an option runs its `jax.jit`-ed function directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
from jax.core import Tracer

from .._body.body import Body
from .._body.call_key import trace_key
from .._checks import Kept
from .._diagnosis.nonfinite import lanes_text, locate, message, nonfinite
from .._errors import NonFiniteError
from .._jax.compile_cache.cache import disabled as cache_disabled
from .._jax.compile_cache.cache import ensure as ensure_cache
from .._jax.equinox_checks import has_equinox_checks
from .._jax.tracing import is_staged
from .._stages import Vmap
from .._view.layout import traced
from .._view.true_sizes import parted
from .checked_calls import Run, checked_calls
from .in_32_bits import demand_lowered
from .outer_transforms import warn_unlooked

_config: Any = jax.config


def runner(body: Body, arrays: Sequence[Any], jitted: Any) -> Run:
    """How calls that this function of JAX serves run from now on."""
    options = body.core.options
    ensure_cache()
    run: Run = jitted
    if not (body.request.nested or traced(arrays)):
        if not body.checked:
            with body.numbers():
                body.checked = has_equinox_checks(jitted.trace(*arrays).jaxpr)
        if body.checked:
            run = checked_calls(body, jitted)
        if options.compiler == "fast":
            run = _fast(jitted, run)
        if not options.cache:
            run = _without_cache(run)
        if options.debug_nans:
            run = _finite(body, jitted, run)
    return _in_x64(body, jitted, run) if options.precision == "f64" else run


def lowered(body: Body, arrays: Sequence[Any], jitted: Any) -> Any:
    """JAX's lowered program of these arrays or abstract values, as `runner` has it run."""
    traced = jitted.trace(*arrays)
    if not body.request.nested and has_equinox_checks(traced.jaxpr):
        body.checked = True
        with suppress(Kept):
            return checked_calls(body, jitted).lowered(*arrays)
    return traced.lower()


def _in_x64(body: Body, jitted: Any, run: Run) -> Run:
    def in_x64(*arrays: Any) -> Any:
        if traced(arrays) and is_staged() and not _config.jax_enable_x64:
            demand_lowered(body, arrays, jitted)
        with jax.enable_x64(True):  # noqa: FBT003
            return run(*arrays)

    return in_x64


def _without_cache(run: Run) -> Run:
    """Compile without the persistent cache: the first call of each set of shapes runs in that
    scope.
    """
    seen: set[Any] = set()

    def uncached(*arrays: Any) -> Any:
        plain, counts = parted(arrays)
        key = trace_key(plain, counts)
        if key in seen:
            return run(*arrays)
        with cache_disabled():
            out = run(*arrays)
        seen.add(key)
        return out

    return uncached


def _fast(jitted: Any, run: Run) -> Run:
    """Compiler options belong to the outermost `jit`; a call without any traced argument shows only
    by JAX's error that it is not.
    """
    plain: Run = jitted.__wrapped__

    def fast(*arrays: Any) -> Any:
        try:
            return run(*arrays)
        except ValueError as error:
            if "compiler_options" not in str(error) or "top-level" not in str(error):
                raise
        return plain(*arrays)

    return fast


def _finite(body: Body, jitted: Any, run: Run) -> Run:
    """Look at every result, and if one is not finite, run again operation by operation to find the
    first that made it so.
    """

    def finite(*arrays: Any) -> Any:
        out = run(*arrays)
        leaves = [leaf for leaf in jax.tree.leaves(out) if isinstance(leaf, jax.Array)]
        # what it is called with are numbers, inside of an outer trace
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            warn_unlooked(body)
        elif nonfinite(leaves):
            finding = locate(jitted.trace(*arrays).jaxpr, list(arrays), leaves)
            if finding is not None:  # else the infinities came in with the arguments
                vmap = (
                    body.planned(arrays, jit=False).plan.of(Vmap)
                    if body.core.options.vmap
                    else None
                )
                lanes = "" if vmap is None else lanes_text(finding.kind, vmap.axes, leaves)
                raise NonFiniteError(message(finding, body.core.where, body.paths, lanes))
        return out

    return finite
