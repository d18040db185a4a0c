"""How a compiled function is called, where more than calling it is asked for. Each wraps a call in what one option needs.

A program without such an option runs its `jax.jit`-ed function directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer

from .._body.body import Body
from .._body.call_key import trace_key
from .._diagnosis.nonfinite import locate, message, nonfinite
from .._errors import NonFiniteError
from .._jax.cache import disabled as cache_disabled
from .._jax.cache import ensure as ensure_cache
from .._jax.compiler import FAST
from .._jax.jaxprs import equations
from .._view.layout import traced
from .._view.true_sizes import parted

Run = Callable[..., Any]
_filter_jit: Any = eqx.filter_jit  # bound here, since some patch it to be jitney's; its overloads leave out the options of `jax.jit`


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
            run = _translating(body, jitted)
        if options.compiler == "fast":
            run = _fast(jitted, run)
        if not options.cache:
            run = _without_cache(run)
        if options.debug_nans:
            run = _finite(body, jitted, run)
    return _in_x64(run) if options.precision == "f64" else run


def _in_x64(run: Run) -> Run:
    def in_x64(*arrays: Any) -> Any:
        with jax.enable_x64(True):  # noqa: FBT003
            return run(*arrays)

    return in_x64


def _without_cache(run: Run) -> Run:
    """Compile without the persistent cache: the first call of each set of shapes runs in that scope."""
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
    """Compiler options belong to the outermost `jit`; a call without any traced argument shows only by JAX's error that it is not."""
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
    """Look at every result, and if one is not finite, run again operation by operation to find the first that made it so."""

    def finite(*arrays: Any) -> Any:
        out = run(*arrays)
        leaves = [leaf for leaf in jax.tree.leaves(out) if isinstance(leaf, jax.Array)]
        if not any(isinstance(leaf, Tracer) for leaf in leaves) and nonfinite(leaves):
            finding = locate(jitted.trace(*arrays).jaxpr, list(arrays), leaves)
            if finding is not None:  # else the infinities came in with the arguments
                raise NonFiniteError(message(finding, body.core.where, body.paths))
        return out

    return finite


def _translating(body: Body, jitted: Any) -> Run:
    """Let Equinox run a program that holds its run-time checks, so that their errors read as its users know them; it waits for
    the result to see them."""
    given = frozenset(body.request.donated)
    options = dict(FAST) if body.core.options.compiler == "fast" else None
    run: Run = jitted.__wrapped__ if options else jitted

    def merged(kept: Sequence[Any], lost: Sequence[Any]) -> Any:
        first, second = iter(kept), iter(lost)
        return run(*(next(second) if i in given else next(first) for i in range(len(kept) + len(lost))))

    merged.__name__ = merged.__qualname__ = body.core.name  # by which JAX's reports are told from those of other programs
    through = _filter_jit(merged, donate="all-except-first" if given else "none", compiler_options=options)

    def checked(*arrays: Any) -> Any:
        kept = tuple(array for i, array in enumerate(arrays) if i not in given)
        lost = tuple(array for i, array in enumerate(arrays) if i in given)
        return through(kept, lost)

    return checked


def has_equinox_checks(closed: Any) -> bool:
    """Whether a program calls back into `eqx.error_if` or its kin.

    Nothing public says so; their callbacks are functions of a module of Equinox. Tried on jax 0.10.2 and 0.12.0.1, Equinox 0.13.8.
    """
    return any(
        "callback" in equation.primitive.name and _module_of(equation.params.get("callback")).startswith("equinox.")
        for equation in equations(closed)
    )


def _module_of(callback: Any) -> str:
    return getattr(getattr(callback, "callback_func", callback), "__module__", "") or ""
