"""Choice of `precision="auto:1e-2"`, and precision reports: the accuracy that bfloat16 costs on
given data, against a float64 shadow of the function, and which products to keep in float32.

One compiled program rounds the factors of any set of products, chosen at run time by flags, so any
number of sets can be tried without a compile. The chosen set is then verified on the autocast
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from .. import _precision
from .._errors import OptionError, PrecisionError
from .._jax.trees import Tracer, is_of_numbers, issubdtype, keystr, tree_flatten_with_path
from .._jax.typed import Array, NumPyArray
from .._precision import FULL, LOW, Policy
from .._public import public_in
from .._signature.options import DEFAULT, ON_ERROR, tolerance_of
from .._stages import Precision, Vmap
from .._stages.autocast import Autocast, body_of, labels_of
from .._stages.stage import Fn, Request, Stage
from .._text.shown import Shown
from .._view.result import Outcome
from .entry import Specialization
from .registry import REGISTRY
from .tracing.traced_calls import Undecided

if TYPE_CHECKING:
    from rich.table import Table

_T = TypeVar("_T")
_FLOOR = 1e-3
AUTO_LOW = "bf16"
WHOLE = {f"{low}-all": low for low in LOW}


@public_in("jitney.types")
@dataclass(frozen=True)
class Deviation:
    """Distance of an array from its float64 shadow, in the 2-norm, relative to the shadow.

    An array a thousand times smaller than the largest of its kind is measured against that
    thousandth.

    Args:
        kind: "output" or "gradient".
        name: The path of the result, or of the argument of the gradient.
        single: In float32.
        low: With every product in the low dtype, by the autocast itself, as a program under that
            policy computes; under "bf16-all" and "fp16-all" with everything in it.
        pinned: Likewise, with the products pinned that the report names.
    """

    kind: str
    name: str
    single: float
    low: float
    pinned: float


@public_in("jitney.types")
@dataclass(frozen=True)
class Product:
    """Cost in accuracy of one product, or of several of one array or line.

    Args:
        name: Its name in a policy: the path of the array, or the line.
        source: The line.
        alone: The worst deviation if it alone is in the low dtype, measured by a probe that rounds
            the factors of one product at a time.
        pinned: Whether it has to stay in float32.
    """

    name: str
    source: str
    alone: float
    pinned: bool


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class PrecisionReport(Shown):
    """Result of `jitney.analysis.precision_report`.

    Args:
        function: The function.
        low: "bf16", "fp16", "bf16-all" or "fp16-all".
        tolerance: The largest deviation that is allowed.
        products: Products that are cast or pinned, the costliest first; none where everything is in
            the low dtype.
        deviations: The deviation of each output and gradient.
    """

    function: str
    low: str
    tolerance: float
    products: tuple[Product, ...]
    deviations: tuple[Deviation, ...]

    @property
    def policy(self) -> dict[str, str] | str:
        """Value to pass as `precision=`."""
        if self.low in WHOLE:
            return self.low
        return {
            DEFAULT: self.low,
            **{product.name: FULL for product in self.products if product.pinned},
        }

    @property
    def worst(self) -> float:
        """Worst deviation under that policy."""
        return max((deviation.pinned for deviation in self.deviations), default=0.0)

    @property
    def holds(self) -> bool:
        """True if the tolerance holds under that policy."""
        return self.worst <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "function": self.function,
            "low": self.low,
            "tolerance": self.tolerance,
            "policy": self.policy,
            "worst": self.worst,
            "holds": self.holds,
            "products": [vars(product) for product in self.products],
            "deviations": [vars(deviation) for deviation in self.deviations],
        }

    def __rich__(self) -> Table:
        from .._text.console import figures

        verdict = "holds" if self.holds else "does not hold"
        title = (
            f"precision of {self.function}: {self.low} {verdict} to {self.tolerance:g}, with"
            f" precision={self.policy!r}"
        )
        single = max((deviation.single for deviation in self.deviations), default=0.0)
        title += f"; float32 itself is off by {single:.1e}" if single > self.tolerance else ""
        if self.low in WHOLE:
            whole = [[d.kind, d.name, f"{d.single:.1e}", f"{d.low:.1e}"] for d in self.deviations]
            return figures(title, [["", "", "float32", self.low], *whole])

        rows: list[list[str]] = [["", "", "float32", self.low, "pinned"]]
        rows += [
            [d.kind, d.name, f"{d.single:.1e}", f"{d.low:.1e}", f"{d.pinned:.1e}"]
            for d in self.deviations
        ]
        rows += [[], ["product", "line", "", f"{self.low} alone", ""]]
        for p in self.products:
            dtype = FULL if p.pinned else self.low
            rows.append([p.name, p.source, "", f"{p.alone:.1e}", dtype])
        return figures(title, rows)


def with_policy(
    entry: Specialization,
    arrays: Sequence[Array],
    ask: Callable[[], _T],
) -> _T:
    """Return `ask()`; each time it finds that a policy has to be chosen by values, choose one with
    these arrays and call it once more.

    Raises:
        OptionError: The arrays have no values.
        PrecisionError: No choice holds the tolerance.
    """
    while True:
        try:
            return ask()
        except Undecided as undecided:
            key = undecided.key
        # Outside of `except`: an error of the choice does not carry Undecided as its context.
        decide(entry, key, arrays)


def decide(
    entry: Specialization,
    key: Hashable,
    arrays: Sequence[Array],
) -> None:
    """Choose the policy of `precision="auto:..."` for a call key, by the values of a call.

    Raises:
        OptionError: An argument has no value.
        PrecisionError: No choice holds the tolerance.
    """
    tolerance = tolerance_of(entry.core.options.precision)
    if tolerance is None:
        raise AssertionError("no tolerance was asked for")
    report = report_on(entry, arrays, tolerance, AUTO_LOW)
    if not report.holds:
        worst = max(report.deviations, key=lambda deviation: deviation.pinned)
        raise PrecisionError(
            entry.core.where,
            f"no choice of products holds {tolerance:g}: {worst.kind} {worst.name!r} is off by"
            f" {worst.pinned:.1e}.",
            f"In float32 it is off by {worst.single:.1e} from its float64 shadow; what is in"
            " float32 anyway cannot be pinned.",
            'ask for less (precision="auto:1e-2"), or compute in float64 (precision="f64").',
        )
    pinned = tuple((product.name, FULL) for product in report.products if product.pinned)
    why = (
        f"chosen on the first call's arguments to hold {tolerance:g}: off by {report.worst:.1e} at"
        " most"
    )
    entry.chosen[key] = Policy(report.low, pinned), why


def report_on(
    entry: Specialization,
    arrays: Sequence[Array],
    tolerance: float,
    low: str,
) -> PrecisionReport:
    """Return the report on a call; see `precision_report`.

    Raises:
        OptionError: An argument has no value.
    """
    where = entry.core.where
    if any(isinstance(array, (Tracer, jax.ShapeDtypeStruct)) for array in arrays):
        raise OptionError(
            where,
            "the error of a low type is asked for where arrays have no values.",
            "It is measured on data: not ahead of time by sizes, and not inside another"
            " transformation.",
            "call it with arrays first, or write the policy that `jitney.analysis.precision_report`"
            " gave.",
            code="J201",
        )

    given = zip(entry.paths, arrays, strict=False)
    no_numbers = [
        path
        for path, array in given
        if isinstance(array, (np.ndarray, np.generic)) and not is_of_numbers(array.dtype)
    ]
    if no_numbers:
        raise OptionError(
            where,
            f"{no_numbers[0]!r} holds no numbers that JAX has.",
            "The error of a low type is measured on numbers.",
            "pass an array of numbers.",
            code="J201",
        )

    # The same function without the options that change its numbers or where it runs.
    core = entry.core
    options = core.options.without(
        "precision",
        "donate",
        "pad",
        "chunk",
        "memory",
        "remat",
        "roll",
        "shard",
        "mesh",
        "accumulate",
        *ON_ERROR,
        "debug_nans",
    )
    plain_core = REGISTRY.core(core.fn(), options, core.namespace)
    plain = Specialization(
        plain_core,
        entry.layout,
        entry.weak_statics,
        None,
    )
    return _Measured(plain, arrays, low).report(tolerance)


class _Measured:
    """Measurements of one function on one set of data."""

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
        function = str(self.entry.core.where)
        if self.asked in WHOLE:
            columns = zip(
                self.names,
                self.rounding_deviations(set()),
                self.everything(),
                strict=True,
            )
            whole = [
                Deviation(
                    kind,
                    name,
                    single,
                    low,
                    low,
                )
                for (kind, name), single, low in columns
            ]
            return PrecisionReport(
                function,
                self.asked,
                tolerance,
                (),
                tuple(whole),
            )

        # Costs of each product alone. If float32 itself misses the tolerance, no pin can help.
        single, low = self.rounding_deviations(set()), self.cast_deviations([])
        alone = {key: max(self.rounding_deviations({key}), default=0.0) for key in self.keys}
        order = sorted(self.keys, key=lambda key: -alone[key])
        pinned: list[str] = []
        if max(single, default=0.0) <= tolerance:
            pinned = self.pins(order, tolerance, low)
        final = self.cast_deviations(pinned) if pinned else low
        # The probe and the autocast may differ: float16 has subnormal numbers. Pin further
        # products, the costliest first, until the autocast itself holds the tolerance.
        for key in order:
            if max(final, default=0.0) <= tolerance or max(single, default=0.0) > tolerance:
                break
            if key not in pinned:
                pinned.append(key)
                final = self.cast_deviations(pinned)

        products = tuple(
            Product(
                key,
                self.products[key].source,
                alone[key],
                key in pinned,
            )
            for key in order
        )
        rows = [
            Deviation(kind, name, *three)
            for (kind, name), *three in zip(
                self.names,
                single,
                low,
                final,
                strict=True,
            )
        ]
        return PrecisionReport(
            function,
            self.low,
            tolerance,
            products,
            tuple(rows),
        )

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
