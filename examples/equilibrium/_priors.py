"""Prior distributions by what people know of a parameter, its mean and standard deviation, and the
way from the line of real numbers to their supports.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import jax
import jax.numpy as jnp
from jax.scipy import stats
from jaxtyping import Array, Float

from ._fail import ModelError, message
from ._given import number, one_of

Kind = Literal["normal", "beta", "gamma", "inverse_gamma", "root_inverse_gamma", "uniform"]
POSITIVE = ("gamma", "inverse_gamma", "root_inverse_gamma")
KINDS: tuple[Kind, ...] = ("normal", "beta", *POSITIVE, "uniform")
Scalar = Float[Array, ""]


@dataclass(frozen=True)
class Prior:
    """A distribution of one parameter.

    Args:
        kind: "normal"; "beta" between `lower` and `upper`; "gamma", "inverse_gamma" and
            "root_inverse_gamma" of what is positive, the last of a parameter whose square has an
            inverse gamma distribution, as the `inv_gamma` of Dynare is; "uniform".
        mean: The mean; "uniform" takes none.
        deviation: The standard deviation; "uniform" takes none.
        lower: Where "beta" and "uniform" begin; others take none.
        upper: Where they end.
    """

    kind: Kind
    mean: float = 0.5
    deviation: float = 0.1
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self):
        where = "Prior"
        one_of(where, "kind", self.kind, KINDS)
        for name in ("mean", "deviation", "lower", "upper"):
            number(where, name, getattr(self, name))
        unread = {"uniform": ("mean", "deviation"), "beta": ()}.get(self.kind, ("lower", "upper"))
        for name in unread:
            if getattr(self, name) != getattr(Prior, name):
                raise ModelError(
                    message(
                        where,
                        f"{name} is {getattr(self, name):g}, and {self.kind!r} does not read it.",
                        'A "uniform" has lower and upper, a "beta" all four, others have mean and'
                        " deviation.",
                        "leave it out, or pass what it means by name.",
                    )
                )
        width, middle = self.upper - self.lower, self.mean - self.lower
        fits = {
            "normal": self.deviation > 0.0,
            "beta": 0.0 < middle < width and self.deviation**2 < middle * (width - middle),
            "gamma": self.mean > 0.0 and self.deviation > 0.0,
            "inverse_gamma": self.mean > 0.0 and self.deviation > 0.0,
            "root_inverse_gamma": self.mean > 0.0 and self.deviation > 0.0,
            "uniform": width > 0.0,
        }
        fits["beta"] = fits["beta"] and self.deviation > 0.0
        if not fits[self.kind]:
            raise ModelError(
                message(
                    where,
                    f"there is no such {self.kind!r}: {self}.",
                    "Deviations are positive, what is positive has a positive mean, and a"
                    ' "beta" has its mean inside and a deviation that is not too large.',
                    "correct the numbers.",
                )
            )

    @cached_property
    def _root(self) -> tuple[float, float]:
        """Shape and rate of the gamma distribution that the inverse of the square has.

        The square has the mean rate / (shape - 1), and the root of that times a ratio of gamma
        functions, which grows from 0 to 1 with the shape, is the mean.
        """
        from scipy.optimize import brentq
        from scipy.special import gammaln

        square = self.mean**2 + self.deviation**2

        def off(free: float) -> float:
            shape = 1.0 + math.exp(free)
            ratio = gammaln(shape - 0.5) - gammaln(shape)
            return ratio + 0.5 * free - 0.5 * math.log(self.mean**2 / square)

        shape = 1.0 + math.exp(brentq(off, -60.0, 60.0, xtol=1e-14, rtol=1e-14))
        return shape, square * (shape - 1.0)

    def log_density(self, value: Scalar) -> Scalar:
        """The logarithm of the density; traced."""
        mean, deviation, width = self.mean, self.deviation, self.upper - self.lower
        if self.kind == "normal":
            return stats.norm.logpdf(value, mean, deviation)
        if self.kind == "uniform":
            return stats.uniform.logpdf(value, self.lower, width)
        if self.kind == "gamma":
            shape = (mean / deviation) ** 2
            return stats.gamma.logpdf(value, shape, scale=mean / shape)
        if self.kind == "beta":
            part = (mean - self.lower) / width
            total = part * (1.0 - part) * (width / deviation) ** 2 - 1.0
            a, b = part * total, (1.0 - part) * total
            return stats.beta.logpdf(value, a, b, loc=self.lower, scale=width)
        if self.kind == "root_inverse_gamma":
            shape, rate = self._root
            of_square = stats.gamma.logpdf(value**-2.0, shape, scale=1.0 / rate)
            return of_square + jnp.log(2.0) - 3.0 * jnp.log(value)
        shape = 2.0 + (mean / deviation) ** 2
        rate = mean * (shape - 1.0)
        # of its inverse, which is gamma, with what the change of variables adds
        return stats.gamma.logpdf(1.0 / value, shape, scale=1.0 / rate) - 2.0 * jnp.log(value)

    def inside(self, free: Scalar) -> tuple[Scalar, Scalar]:
        """A value in the support from any number, and the logarithm of its derivative; traced."""
        if self.kind == "normal":
            return free, jnp.zeros_like(free)
        if self.kind in POSITIVE:
            return jnp.exp(free), free
        width = self.upper - self.lower
        slope = jax.nn.log_sigmoid(free) + jax.nn.log_sigmoid(-free) + jnp.log(width)
        return self.lower + width * jax.nn.sigmoid(free), slope

    def outside(self, value: Scalar) -> Scalar:
        """The number of which `inside` makes this value; traced."""
        if self.kind == "normal":
            return value
        if self.kind in POSITIVE:
            return jnp.log(value)
        part = (value - self.lower) / (self.upper - self.lower)
        return jnp.log(part) - jnp.log1p(-part)

    @property
    def middle(self) -> float:
        """A value inside."""
        return 0.5 * (self.lower + self.upper) if self.kind == "uniform" else self.mean
