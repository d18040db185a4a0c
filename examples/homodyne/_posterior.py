"""Draws of the posterior around a fit: by NUTS over all points, or over parts of them whose draws
are put together (consensus Monte Carlo).

NUTS is Hoffman and Gelman's (JMLR 15, 2014), of `blackjax`, which is imported when it is asked for.
Consensus: Scott et al., "Bayes and big data", Int. J. of Management Science and Engineering
Management 11 (2016) 78-88: each part of the data has its root of the prior, and draws are averaged
with the inverse covariances as weights, which is exact where all are normal. The average is taken
in the coordinates in which the fit is a standard normal (`_target.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from ..trf._fail import fail
from ._diagnostics import effective_size, r_hat
from ._measurement import Measurement
from ._mode_fit import ModeFit
from ._target import Target, target

MIXED = 1.01  # the largest R-hat of chains that have mixed
ENOUGH = 100  # effective draws for each chain
SCATTER = 1.5  # standard deviations of where chains start
WALL = 0.2  # standard deviations from a bound that draws come near


@dataclass(frozen=True)
class Chain:
    """What a sampler gives: draws of w, and how many of its steps diverged."""

    draws: np.ndarray
    diverged: int


Sampler = Callable[[Target, Any, np.ndarray, int, int], Chain]


@dataclass(frozen=True)
class Posterior:
    """Draws of the free parameters.

    Args:
        names: Of the parameters.
        draws: A row for each chain, in it one for each draw.
        r_hat: Of each parameter.
        effective: Independent draws that they are worth, for each parameter.
        diverged: Steps of the sampler that did.
        parts: Into how many the data were divided.
        warnings: What is wrong with the draws.
    """

    names: tuple[str, ...]
    draws: np.ndarray
    r_hat: np.ndarray
    effective: np.ndarray
    diverged: int
    parts: int
    warnings: tuple[str, ...]

    @property
    def flat(self) -> np.ndarray:
        """All draws, a row each."""
        return self.draws.reshape(-1, len(self.names))

    @property
    def mean(self) -> np.ndarray:
        """Of each parameter."""
        return self.flat.mean(axis=0)

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each parameter."""
        return self.flat.std(axis=0, ddof=1)

    def interval(self, level: float) -> np.ndarray:
        """Lower and upper end, between which a parameter is with this probability."""
        ends = ((1 - level) / 2, (1 + level) / 2)
        return np.quantile(self.flat, ends, axis=0)

    def __str__(self) -> str:
        low, high = self.interval(0.95)
        rows = [
            f"{name:16} {m:>14.8g} {d:>10.2g}  95%: {a:.8g} to {b:.8g}  R-hat {r:.3f}, {e:,.0f}"
            " effective"
            for name, m, d, a, b, r, e in zip(
                self.names,
                self.mean,
                self.deviation,
                low,
                high,
                self.r_hat,
                self.effective,
                strict=True,
            )
        ]
        return "\n".join([*rows, *(f"warning: {warning}" for warning in self.warnings)])


def posterior(
    fit: ModeFit,
    data: Measurement,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 500,
    parts: int = 1,
    priors: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    sampler: Sampler | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Posterior:
    """Draw from the posterior of a fit.

    Noise is normal, with the standard deviations that the fit took. Priors are uniform between the
    bounds of the fit.

    Args:
        fit: The fit, where chains start, scattered as it says.
        data: What was fitted.
        chains: How many, one after the other.
        draws: Of each.
        warmup: Steps before, in which the sampler finds its own.
        parts: More than one divides the data: pair i goes to part i modulo `parts`, and each part
            has its own chains. For data of which a pass takes too long.
        priors: Mean and standard deviation of normal priors, by name.
        seed: Of all random numbers.
        sampler: In the place of NUTS.
        progress: Called with the number of chains that are done, and of all.
    Raises:
        ImportError: `blackjax` is not installed.
        ValueError: A number is too small, or the fit does not determine a parameter.
    """
    for name, value, least in (("chains", chains, 1), ("draws", draws, 4), ("parts", parts, 1)):
        if value < least:
            fail(f"{name}={value}.", f"It is {least} at least.", f"write {name}={least}.")
    run = sampler or nuts()
    keys = np.random.default_rng(seed)
    z = fit.x[[fit.names.index(name) for name in fit.free]]
    pieces, counted = [], 0
    with jax.enable_x64(True):
        for piece in divided(data, parts):
            aim = target(
                fit.layout, piece, fit.sigma, z, fit.covariance, priors=priors, parts=parts
            )
            found = []
            for _ in range(chains):
                key = jax.random.key(int(keys.integers(2**31)))
                start = scattered(aim, keys, SCATTER * np.sqrt(parts))
                found.append(run(aim, key, start, warmup, draws))
                counted += 1
                progress(counted, chains * parts)
            pieces.append(found)
            aim = aim.coordinates
        # Chains are judged before they are put together: an average hides one that has not mixed.
        judged = [np.stack([chain.draws for chain in found]) for found in pieces]
        w = consensus(judged)
        reached = _reached(aim, judged)
        values = np.asarray(jax.vmap(aim.data.z)(w.reshape(-1, aim.size))).reshape(w.shape)
    diverged = sum(chain.diverged for found in pieces for chain in found)
    columns = range(aim.size)
    ratios = np.array([max(r_hat(own[..., i]) for own in judged) for i in columns])
    sizes = np.array([min(effective_size(own[..., i]) for own in judged) for i in columns])
    said = (*_warnings(fit, ratios, sizes, chains), *_ends(fit, reached, diverged, values, parts))
    return Posterior(fit.free, values, ratios, sizes, diverged, parts, said)


def divided(data: Measurement, parts: int) -> Iterator[Measurement]:
    """Parts of a measurement that each have pairs of all delays."""
    arrays = data.opened()
    for part in range(parts):
        rows = slice(part, None, parts)
        yield replace(
            arrays, t1=arrays.t1[rows], t2=arrays.t2[rows], measured=arrays.measured[:, rows]
        )


def consensus(pieces: list[np.ndarray]) -> np.ndarray:
    """Draws of the whole from those of the parts: their average, weighted by the inverses of their
    covariances.

    Args:
        pieces: Of each part, chains of draws.
    """
    if len(pieces) == 1:
        return pieces[0]
    size = pieces[0].shape[-1]
    weights = [
        np.linalg.inv(np.atleast_2d(np.cov(each.reshape(-1, size), rowvar=False)))
        for each in pieces
    ]
    summed = sum(each @ weight for each, weight in zip(pieces, weights, strict=True))
    return summed @ np.linalg.inv(sum(weights))


def scattered(aim: Target, keys: np.random.Generator, by: float) -> np.ndarray:
    """A start of a chain between the bounds, about so many deviations from the fit.

    Raises:
        ValueError: None is found, as of a fit in a corner of several bounds.
    """
    tries = by * keys.normal(size=(1000, aim.size))
    found = next((start for start in tries if aim.inside(start)), None)
    if found is None:
        fail(
            "No start between the bounds is near the fit.",
            "A chain starts between them.",
            "hold parameters that the fit has at their bounds, or move these bounds.",
        )
    return found


def nuts() -> Sampler:
    """NUTS of blackjax, whose steps and scales adapt in the warm-up.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import blackjax
    except ModuleNotFoundError as error:
        raise ImportError(
            "A posterior is drawn by NUTS of the package `blackjax`, which is not installed.\n"
            "It is not a requirement of the examples.\n"
            "Fix: pip install blackjax; or give `posterior` a `sampler` of your own."
        ) from error
    return _sampler(blackjax)


@lru_cache(maxsize=1)
def _sampler(blackjax: Any) -> Sampler:
    @partial(jax.jit, static_argnums=(0, 4, 5))
    def chain(density: Any, key: Any, start: Any, data: Any, warmup: int, draws: int) -> Any:
        def logarithm(w: Any) -> Any:
            return density(w, data)

        def one(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.is_divergent)

        adapting, sampling = jax.random.split(key)
        adapted = blackjax.window_adaptation(blackjax.nuts, logarithm)
        (state, parameters), _ = adapted.run(adapting, start, warmup)
        step = blackjax.nuts(logarithm, **parameters).step
        _, (found, diverged) = jax.lax.scan(one, state, jax.random.split(sampling, draws))
        return found, diverged.sum()

    def run(aim: Target, key: Any, start: np.ndarray, warmup: int, draws: int) -> Chain:
        found, diverged = chain(aim.density, key, start, aim.data, warmup, draws)
        return Chain(np.asarray(found), int(diverged))

    return run


def _warnings(fit: ModeFit, ratios: np.ndarray, sizes: np.ndarray, chains: int) -> Iterator[str]:
    yield from (each for each in fit.warnings if each.startswith("The model does not fit"))
    slow = [name for name, ratio in zip(fit.free, ratios, strict=True) if ratio > MIXED]
    if slow:
        yield (
            f"The chains have not mixed in {', '.join(slow)}: R-hat is above {MIXED}."
            " Fix: more draws or warm-up, or hold what the data do not determine."
        )
    enough = ENOUGH * chains
    few = [name for name, size in zip(fit.free, sizes, strict=True) if size < enough]
    if few:
        yield (
            f"There are fewer than {enough} effective draws of {', '.join(few)}. Fix: more draws."
        )


def _ends(
    fit: ModeFit, reached: np.ndarray, diverged: int, values: np.ndarray, parts: int
) -> Iterator[str]:
    names = ", ".join(fit.free[i] for i in np.flatnonzero(reached))
    if diverged:
        where = f" at the bounds of {names}" if names else ", diverging"
        steps = parts * values.shape[0] * values.shape[1]
        yield f"{diverged} of {steps} steps ended{where}."
    if names and parts > 1:
        yield (
            f"Draws of parts reach the bounds of {names}, which the whole may not: their average is"
            " biased, and too narrow. Fix: fewer parts."
        )


def _reached(aim: Target, judged: list[np.ndarray]) -> np.ndarray:
    """Parameters of which draws come near a bound, in any part."""
    flat = np.concatenate([each.reshape(-1, aim.size) for each in judged])
    z = np.asarray(jax.vmap(aim.data.z)(flat))
    margin = WALL * z.std(axis=0)
    near = z.min(axis=0) < aim.data.lower + margin
    return np.asarray(near | (z.max(axis=0) > aim.data.upper - margin))
