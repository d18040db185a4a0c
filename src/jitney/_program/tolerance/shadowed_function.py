"""A function under sets of rounded products, beside its float64 shadow: how far results are off.

One compiled program rounds the factors of any set of products, chosen at run time by flags, so any
number of sets can be tried without a compile. The chosen set is then verified on the autocast
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np

from ... import _precision
from ..._jax.trees import issubdtype, keystr, tree_flatten_with_path
from ..._jax.typed import Array, NumPyArray
from ..._precision import FULL, Policy
from ..._stages import Precision, Vmap
from ..._stages.autocast import Autocast, body_of, labels_of
from ..._stages.stage import Fn, Request, Stage
from ..._view.result import Outcome
from ..entry import Specialization
from .precision_report import (
    WHOLE,
    Deviation,
    PrecisionReport,
    Product,
)

_FLOOR = 1e-3


class ShadowedFunction:
    """A function on one set of data, under casts, beside its float64 shadow."""

    def __init__(
        self,
        entry: Specialization,
        arrays: Sequence[Array],
        low: str,
    ):
        self.entry = entry
        self.arrays = [jax.numpy.asarray(array) for array in arrays]
        self.asked = low
        self.low = WHOLE.get(low, low)
        planned = entry.plan_call(self.arrays, jit=False)
        self.plan = planned.plan
        self.view = self.plan.seen_inside(Vmap, planned.view)
        dtypes = [array.dtype for array in self.arrays]
        self.varied = [i for i, dtype in enumerate(dtypes) if issubdtype(dtype, np.floating)]
        self.outcome = Outcome()
        # Indices of the results that are real or complex numbers, out of `count`.
        self.real: list[int] = []
        self.count = 0
        self.sites: list[_precision.ProductSite] = []

        # The float64 shadow: the jaxpr of the body, evaluated in double precision.
        exact = body_of(self.outputs_and_gradient(_as_it_is), self.arrays)
        with jax.enable_x64(True):  # noqa: FBT003
            in_double = jax.jit(partial(_precision.in_double, exact))
            self.shadow = _host(in_double(*self.arrays))

        # The products, found by a probe that rounds none of them.
        self.names = self.result_names()
        jax.eval_shape(
            self.outputs_and_gradient(lambda body: self.probe_body(body, {})), *self.arrays
        )
        self.products = {site.key: site for site in self.sites if site.stays is None and site.key}
        self.keys = list(self.products)
        self.run = jax.jit(self.evaluate_with_flags)

    # Programs: the function under a cast.

    def outputs_and_gradient(self, cast: Callable[[Fn], Fn]) -> Callable[..., list[Array]]:
        """Return a function of the arrays: the real and complex outputs of the body under a cast,
        and the gradient if there is one output, a real number.
        """
        vmap = self.plan.of(Vmap)

        def outputs(arrays: Sequence[object]) -> list[Array]:
            body = cast(self.entry.body_inside(self.plan, Precision, self.outcome))
            if vmap is not None:
                body = vmap.wrap(body, self.outcome)
            out = list(body(*arrays))
            self.count = len(out)
            self.real = [i for i, x in enumerate(out) if issubdtype(x.dtype, np.inexact)]
            return [out[i] for i in self.real]

        def run(*arrays: object) -> list[Array]:
            out = outputs(arrays)
            has_gradient = [x.shape for x in out] == [()] and issubdtype(out[0].dtype, np.floating)
            if not has_gradient:
                return out

            def scalar(varied: list[Array]) -> Array:
                given = dict(zip(self.varied, varied, strict=True))
                whole = [given.get(i, array) for i, array in enumerate(arrays)]
                return outputs(whole)[0]

            varied = [arrays[i] for i in self.varied]
            return [out[0], *jax.grad(scalar)(varied)]

        return run

    def probe_body(self, body: Fn, chosen: Mapping[str, object]) -> Fn:
        def run(*arrays: jax.Array) -> list[Array]:
            probe = _precision.Probe(self.low, chosen)
            out, _ = probe.run(body_of(body, arrays), arrays, labels_of(self.view))
            self.sites = probe.sites
            return out

        return run

    def evaluate_with_flags(self, flags: jax.Array, *arrays: object) -> list[Array]:
        chosen = {key: flags[i] for i, key in enumerate(self.keys)}
        return self.outputs_and_gradient(lambda body: self.probe_body(body, chosen))(*arrays)

    # Results: deviations, and the search for pins.

    def result_names(self) -> list[tuple[str, str]]:
        """Return the kind and the name of each result."""
        whole = self.outcome.whole([_Numbered(i) for i in range(self.count)])
        paths = {
            leaf.number: keystr(path)
            for path, leaf in tree_flatten_with_path(whole)[0]
            if isinstance(leaf, _Numbered)
        }
        outputs = [("output", f"result{paths[i]}") for i in self.real]
        gradients = [("gradient", self.entry.paths[i]) for i in self.varied]
        return [*outputs, *gradients][: len(self.shadow)]

    def deviations(self, results: Sequence[object]) -> list[float]:
        """Return the deviation of each result from the shadow."""
        kinds = [kind for kind, _ in self.names]
        sizes = [float(np.linalg.norm(exact)) for exact in self.shadow]
        columns = zip(
            kinds,
            _host(results),
            self.shadow,
            sizes,
            strict=True,
        )
        deviations: list[float] = []
        for kind, result, exact, size in columns:
            largest = max(other for of, other in zip(kinds, sizes, strict=True) if of == kind)

            # The floor: an array that is nearly zero next to the others of its kind is not measured
            # against its own size.
            scale = max(size, _FLOOR * largest)
            off = float(np.linalg.norm(result - exact))
            if not np.isfinite(off):
                off = np.inf
            elif scale > 0:
                off /= scale
            deviations.append(off)
        return deviations

    def rounding_deviations(self, keys: set[str]) -> list[float]:
        """Return the deviations with these products in the low dtype."""
        flags = np.array([key in keys for key in self.keys], bool)
        return self.deviations(self.run(flags, *self.arrays))

    def cast_deviations(self, pinned: Sequence[str]) -> list[float]:
        """Return the deviations of the autocast itself."""
        policy = Policy(self.low, tuple((key, FULL) for key in pinned))
        stage = Autocast(policy, labels_of(self.view), self.entry.core.where, "")
        return self.under(stage)

    def under(self, stage: Stage) -> list[float]:
        """Return the deviations of the function under a stage that casts."""

        def cast(body: Fn) -> Fn:
            return stage.wrap(body, self.outcome)

        run = jax.jit(self.outputs_and_gradient(cast))
        return self.deviations(run(*self.arrays))

    def everything(self) -> list[float]:
        """Return the deviations where everything is computed in the low dtype, as the program does
        it.
        """
        options = replace(self.entry.core.options, precision=self.asked)
        stage = Precision.plan(self.view, Request(self.entry.core.where, options))
        return self.under(stage)

    def report(self, tolerance: float) -> PrecisionReport:
        """Return the report, with the products that have to be pinned to hold a tolerance."""
        if self.asked in WHOLE:
            return self._report_without_products(tolerance)
        single, low = self.rounding_deviations(set()), self.cast_deviations([])
        alone = {key: max(self.rounding_deviations({key}), default=0.0) for key in self.keys}
        order = sorted(self.keys, key=lambda key: -alone[key])

        # If float32 itself misses the tolerance, no pin can help.
        can_hold = max(single, default=0.0) <= tolerance
        pinned = self.pins(order, tolerance, low) if can_hold else []
        final = self.cast_deviations(pinned) if pinned else low

        # The probe and the autocast may differ: float16 has subnormal numbers. Pin further
        # products, the costliest first, until the autocast itself holds the tolerance.
        for key in order:
            if max(final, default=0.0) <= tolerance or not can_hold:
                break
            if key not in pinned:
                pinned.append(key)
                final = self.cast_deviations(pinned)

        sources = {key: self.products[key].source for key in order}
        products = [Product(key, sources[key], alone[key], key in pinned) for key in order]
        columns = zip(self.names, single, low, final, strict=True)
        rows = [Deviation(kind, name, *three) for (kind, name), *three in columns]
        return self._report(self.low, tolerance, products, rows)

    def _report_without_products(self, tolerance: float) -> PrecisionReport:
        """Return the report of a policy under which everything is in the low dtype."""
        single, low = self.rounding_deviations(set()), self.everything()
        columns = zip(self.names, single, low, low, strict=True)
        rows = [Deviation(kind, name, *three) for (kind, name), *three in columns]
        return self._report(self.asked, tolerance, [], rows)

    def _report(
        self,
        low: str,
        tolerance: float,
        products: Sequence[Product],
        rows: Sequence[Deviation],
    ) -> PrecisionReport:
        function = str(self.entry.core.where)
        return PrecisionReport(function, low, tolerance, tuple(products), tuple(rows))

    def pins(
        self,
        order: Sequence[str],
        tolerance: float,
        low: Sequence[float],
    ) -> list[str]:
        """Return the products that must not be cast.

        A greedy search: pin the costliest until the tolerance holds, then release each pin that is
        not needed.
        """
        pinned: list[str] = []
        deviations = low
        for key in order:
            if max(deviations, default=0.0) <= tolerance:
                break
            pinned.append(key)
            deviations = self.rounding_deviations(set(order) - set(pinned))

        for key in list(reversed(pinned)):
            rest = [other for other in pinned if other != key]
            if max(self.rounding_deviations(set(order) - set(rest)), default=0.0) <= tolerance:
                pinned = rest
        return pinned


@dataclass(frozen=True)
class _Numbered:
    """Placeholder for one array of a result."""

    number: int


def _as_it_is(body: Fn) -> Fn:
    return body


def _host(results: Sequence[object]) -> list[NumPyArray]:
    return [_doubles(np.asarray(result).ravel()) for result in results]


def _doubles(array: NumPyArray) -> NumPyArray:
    """Return complex numbers as pairs of real ones."""
    if issubdtype(array.dtype, np.complexfloating):
        return array.astype(np.complex128).view(np.float64)
    return array.astype(np.float64)
