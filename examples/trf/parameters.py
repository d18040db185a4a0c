"""Parameters by name: with bounds, held fixed, or tied to others; and a report of the fit."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._api import curve_fit
from ._fail import fail
from ._result import Result

CORRELATED = 0.1  # and more is reported
HELD = {-1: ", at its lower bound", 0: "", 1: ", at its upper bound"}


@dataclass(frozen=True)
class Parameter:
    """A number to fit.

    Attributes:
        value: Start.
        lower: Bound.
        upper: Bound.
        fixed: Whether it stays at its start.
    """

    value: float
    lower: float = -np.inf
    upper: float = np.inf
    fixed: bool = False


@dataclass(frozen=True)
class Tied:
    """A number that follows from others: a function whose arguments have their names.

    Define the function once: another lambda that does the same is another program.
    """

    by: Callable[..., Array]

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of those."""
        return tuple(inspect.signature(self.by).parameters)


Given = float | Parameter | Tied


class Named(eqx.Module):
    """A model that takes its parameters by name, as one that takes the free ones in order. Numbers
    that are fixed are data of the program.
    """

    model: Callable[..., Array] = eqx.field(static=True)
    free: tuple[str, ...] = eqx.field(static=True)
    ties: tuple[tuple[str, Tied], ...] = eqx.field(static=True)
    held: tuple[str, ...] = eqx.field(static=True)
    numbers: tuple[Float[np.ndarray, ""], ...]  # of those

    def __call__(self, t: Any, *p: Array) -> Array:
        """The curve."""
        return self.model(t, **self.values(p))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """What messages call them."""
        return self.free

    def values(self, p: Sequence[Any]) -> dict[str, Any]:
        """All of them by name."""
        known = dict(zip((*self.held, *self.free), (*self.numbers, *p), strict=True))
        for name, tie in self.ties:  # each after those that it needs
            known[name] = tie.by(**{need: known[need] for need in tie.needs})
        return known


@dataclass(frozen=True)
class NamedFit:
    """A fit whose parameters have names.

    Attributes:
        result: Of the free ones, in the order of `free`.
        free: Their names.
        given: What was given.
    """

    result: Result
    free: tuple[str, ...]
    given: Mapping[str, Parameter | Tied]
    named: Named = field(repr=False)

    @cached_property
    def values(self) -> dict[str, float]:
        """Each parameter at the solution."""
        with jax.enable_x64(True):
            found = self.named.values(list(self.result.x))
        return {name: float(found[name]) for name in self.given}

    @cached_property
    def errors(self) -> dict[str, float]:
        """Standard error of each: 0 for a fixed one, by its derivatives for a tied one; inf for one
        that the data do not determine.
        """
        covariance = self.result.covariance
        errors = dict.fromkeys(self.given, 0.0)
        for i, name in enumerate(self.free):
            errors[name] = float(np.sqrt(covariance[i, i]))
        for name, _ in self.named.ties:
            slope = self._slope(name)
            own = slope != 0
            part, slope = covariance[np.ix_(own, own)], slope[own]
            known = np.isfinite(part).all()
            errors[name] = float(np.sqrt(slope @ part @ slope)) if known else np.inf
        return errors

    def _slope(self, name: str) -> Float[np.ndarray, "k"]:
        """Derivatives of a tied parameter by the free ones."""
        with jax.enable_x64(True):
            x = jnp.asarray(self.result.x)
            return np.array(jax.grad(lambda p: 1.0 * self.named.values(p)[name])(x))

    @property
    def correlations(self) -> dict[tuple[str, str], float]:
        """Of each pair of free parameters that the data determine, the strongest first."""
        matrix, pairs = self.result.correlations, {}
        for i, a in enumerate(self.free):
            for j, b in enumerate(self.free[:i]):
                if np.isfinite(matrix[i, j]):
                    pairs[b, a] = float(matrix[i, j])
        return dict(sorted(pairs.items(), key=lambda pair: -abs(pair[1])))

    def report(self) -> str:
        """Statistics, parameters with errors, correlations, in the form of lmfit's."""
        lines = ["[[Fit Statistics]]"]
        lines += [f"    {name:<18} = {value}" for name, value in self._statistics().items()]
        lines.append("[[Variables]]")
        width = max(map(len, self.given)) + 1
        for name, given in self.given.items():
            lines.append(f"    {name + ':':<{width}} {self._line(name, given)}")
        strong = {pair: c for pair, c in self.correlations.items() if abs(c) > CORRELATED}
        if strong:
            lines.append(f"[[Correlations]] (those above {CORRELATED})")
            lines += [f"    C({a}, {b}) = {c:+.4f}" for (a, b), c in strong.items()]
        return "\n".join(lines)

    def _statistics(self) -> dict[str, Any]:
        """The information criteria are those of normal errors, so a robust loss has none."""
        m, k = int(self.result._scalar("points")), len(self.free)
        counts = {"function evals": self.result.nfev, "data points": m, "variables": k}
        end = {"stopped by": self.result.message}
        if self.result.programs.setup.loss != "linear":
            return {**counts, "robust cost": f"{self.result.cost:.8g}", **end}
        chi2 = 2 * float(self.result.cost)
        with np.errstate(divide="ignore"):
            likelihood = m * np.log(chi2 / m)
        return {
            **counts,
            "chi-square": f"{chi2:.8g}",
            "reduced chi-square": f"{chi2 / (m - k):.8g}" if m > k else "unknown",
            "Akaike info crit": f"{likelihood + 2 * k:.8g}",
            "Bayesian info crit": f"{likelihood + np.log(m) * k:.8g}",
            **end,
        }

    def _line(self, name: str, given: Parameter | Tied) -> str:
        value, error = self.values[name], self.errors[name]
        if isinstance(given, Parameter) and given.fixed:
            return f"{value:.8g} (fixed)"
        part = f" ({abs(100 * error / value):.2f}%)" if value and np.isfinite(error) else ""
        spread = f"{value:.8g} +/- {error:.8g}{part}"
        if isinstance(given, Tied):
            return f"{spread} (tied to {', '.join(given.needs)})"
        held = HELD[int(self.result.active_mask[self.free.index(name)])]
        return f"{spread} (init = {given.value:g}{held})"


def fit_named(
    model: Callable[..., Array],
    parameters: Mapping[str, Given],
    t: Any,
    y: Any,
    **options: Any,
) -> NamedFit:
    """Fit y = model(t, name=value, ...) by `curve_fit`.

    Args:
        model: Curve at t; its other arguments have the names of the parameters.
        parameters: For each name a start, a `Parameter`, or a `Tied`.
        t: Where y was measured.
        y: The measurements of one curve.
        options: Others of `curve_fit`, but `p0`, `bounds` and `jac`.
    """
    for option in ("p0", "bounds", "jac"):
        if option in options:
            fail(
                f"`{option}` is not an option of `fit_named`.",
                "Starts and bounds are those of the parameters; derivatives are exact.",
                "write Parameter(value, lower, upper).",
                TypeError,
            )
    if np.ndim(y) != 1:
        fail(
            f"`y` has shape {np.shape(y)}.",
            "The fit by names is of one curve.",
            "fit a batch by `curve_fit`.",
        )
    given = {name: _parameter(one) for name, one in parameters.items()}
    try:
        inspect.signature(model).bind(t, **given)
    except TypeError as error:
        fail(
            f"The parameters are {', '.join(given)}, and the model has others: {error}.",
            "Each argument of `model` after the first is a parameter of this name.",
            "name all of them, and no others.",
            TypeError,
        )
    numbers = {name: one for name, one in given.items() if isinstance(one, Parameter)}
    free = {name: one for name, one in numbers.items() if not one.fixed}
    if not free:
        fail("No parameter is free.", "A fit moves at least one.", "leave `fixed` out for one.")
    held = {name: np.asarray(one.value, float) for name, one in numbers.items() if one.fixed}
    named = Named(model, tuple(free), _in_order(given), tuple(held), tuple(held.values()))
    sides = zip(*((one.lower, one.upper) for one in free.values()), strict=True)
    box = tuple(np.array(side) for side in sides)
    p0 = [one.value for one in free.values()]
    return NamedFit(curve_fit(named, t, y, p0, bounds=box, **options), tuple(free), given, named)


def _parameter(given: Given) -> Parameter | Tied:
    return given if isinstance(given, Parameter | Tied) else Parameter(float(given))


def _in_order(given: Mapping[str, Parameter | Tied]) -> tuple[tuple[str, Tied], ...]:
    """Tied parameters, each after those that it needs."""
    known = {name for name, one in given.items() if isinstance(one, Parameter)}
    left = {name: one for name, one in given.items() if isinstance(one, Tied)}
    order: list[tuple[str, Tied]] = []
    while left:
        ready = [name for name, tie in left.items() if known.issuperset(tie.needs)]
        if not ready:
            name, tie = next(iter(left.items()))
            fail(
                f"`{name}` is tied to {', '.join(tie.needs)}.",
                "It follows from parameters that do not, in turn, follow from it.",
                "name parameters that are there, without a circle.",
            )
        order += [(name, left.pop(name)) for name in ready]
        known.update(ready)
    return tuple(order)
