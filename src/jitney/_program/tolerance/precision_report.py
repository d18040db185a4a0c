"""Report on the accuracy that a low type costs: deviations of results, and costs of products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._precision import FULL, LOW
from ..._public import public_in
from ..._signature.options import DEFAULT
from ..._text.shown import Shown

if TYPE_CHECKING:
    from rich.table import Table

WHOLE = {f"{low}-all": low for low in LOW}
"""Policies under which everything is computed in a low dtype -> that dtype."""


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
        from ..._text.console import figures

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
