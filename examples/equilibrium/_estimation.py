"""Estimation: the posterior of some parameters, its mode, and draws from it by blackjax's no-U-turn
sampler, which can be interrupted.

The posterior is one program with its gradient. Searches and chains move on the line of real
numbers, where no value is impossible; `Prior.inside` leads back.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._fail import ModelError, NoMode, message
from ._given import count, few, lines, made_by, number, real, shown
from ._implicit import Solution, solution
from ._likelihood import columns, log_likelihood
from ._model import Model
from ._priors import Prior

Vector = Float[Array, "size"]
FLAT = 1e-4  # the gradient at a mode, in units of a standard deviation


@dataclass(frozen=True, eq=False)
class Posterior:
    """What data and priors say of parameters.

    Args:
        model: The model.
        params: Its parameters; those without a prior stay.
        priors: By name of a parameter, `rho` or `Zbar[3]`.
        data: As of `log_likelihood`: levels, rows are dates, NaN where there is none.
        observed: The variables of its columns.
        covariance: From parameters to the covariance of the innovations, a matrix or a group of
            variances. A standard deviation that is to be estimated is a parameter of the model,
            whether equations read it or not.
        errors: Variances of measurement errors.
        at: From parameters to controls and states of the steady state, if they are known.
        start: As of `log_likelihood`.
        presample: As of `log_likelihood`.
    """

    model: Model
    params: Any
    priors: Mapping[str, Prior]
    data: Float[Array, "dates y"]
    observed: Sequence[str]
    covariance: Callable[[Any], PyTree]
    errors: Any = 0.0
    at: Callable[[Any], tuple[PyTree, PyTree]] | None = None
    start: float | None = None
    presample: int = 0
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self):
        made_by("Posterior", "model", self.model, Model, "Model(...)")
        where = f"{self.model.name}, posterior"
        if not isinstance(self.priors, Mapping) or not self.priors:
            raise ModelError(
                message(
                    where,
                    f"priors are {shown(self.priors)}.",
                    "They are a dict from names of parameters to priors.",
                    'pass {"rho": Prior("beta", 0.8, 0.1)}.',
                )
            )
        for name, prior in self.priors.items():
            self.model.parameters.index(where, name)
            made_by(where, f"the prior of {name!r}", prior, Prior, 'Prior("normal", 0.0, 1.0)')
        with jax.enable_x64(True):
            shape = np.shape(real(where, "data", self.data))
        columns(self.model, shape, self.observed, where)
        if not callable(self.covariance):
            raise ModelError(
                message(
                    where,
                    f"covariance is {shown(self.covariance)}.",
                    "It is a function from parameters to the covariance of the innovations.",
                    "write `lambda p: Shocks(p.sd**2)`.",
                )
            )
        object.__setattr__(self, "names", tuple(self.priors))
        _ = self._base

    def __repr__(self) -> str:
        title = f"{self.model.name}, posterior given {len(self.data)} dates of"
        rows = {name: str(prior) for name, prior in self.priors.items()}
        return lines(f"{title} {few(self.observed)}", rows)

    @cached_property
    def _base(self) -> np.ndarray:
        return self.model.theta(self.params)

    @property
    def middle(self) -> np.ndarray:
        """Values that all priors allow."""
        return np.array([prior.middle for prior in self.priors.values()])

    def params_at(self, values: Vector) -> Any:
        """Parameters with these in the places of those that have priors; traced."""
        layout = self.model.parameters
        places = np.array([layout.names.index(name) for name in self.names])
        return layout.traced(jnp.asarray(self._base).at[places].set(values))

    def log_density(self, values: Vector) -> Float[Array, ""]:
        """The logarithm of prior times likelihood; traced. Minus infinity where there is not
        exactly one stable solution.
        """
        params = self.params_at(values)
        where = None if self.at is None else self.at(params)
        found: Solution = solution(self.model, params, at=where)
        fits = log_likelihood(
            self.model,
            found,
            self.data,
            self.observed,
            self.covariance(params),
            self.errors,
            self.start,
            self.presample,
        )
        prior = sum(
            (p.log_density(value) for p, value in zip(self.priors.values(), values, strict=True)),
            jnp.zeros(()),
        )
        total = fits + prior
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    def inside(self, free: Vector) -> tuple[Vector, Float[Array, ""]]:
        """Values from numbers on the line, and the logarithm of their density's factor; traced."""
        pairs = [p.inside(f) for p, f in zip(self.priors.values(), free, strict=True)]
        return jnp.stack([value for value, _ in pairs]), sum(
            (slope for _, slope in pairs), jnp.zeros(())
        )

    def outside(self, values: Vector) -> Vector:
        """Numbers on the line from values; traced."""
        return jnp.stack([p.outside(v) for p, v in zip(self.priors.values(), values, strict=True)])

    def free_density(self, free: Vector) -> Float[Array, ""]:
        """The logarithm of the density on the line; traced."""
        values, slope = self.inside(free)
        return self.log_density(values) + slope


@dataclass(frozen=True, eq=False)
class Mode:
    """The mode of a posterior, and the normal distribution with the same curvature there.

    Args:
        values: Parameters by name.
        log_density: Of prior times likelihood.
        covariance: The inverse of its negative second derivatives.
    """

    posterior: Posterior
    values: dict[str, float]
    log_density: float
    covariance: np.ndarray

    def __repr__(self) -> str:
        title = f"{self.posterior.model.name}, mode of log density {self.log_density:.6g}"
        spread = self.deviation
        rows = {name: f"{at:.6g} +- {spread[name]:.2g}" for name, at in self.values.items()}
        return lines(title, rows)

    @property
    def deviation(self) -> dict[str, float]:
        """Standard deviations of the normal distribution."""
        return dict(zip(self.values, np.sqrt(np.diag(self.covariance)).tolist(), strict=True))

    @property
    def evidence(self) -> float:
        """The logarithm of the density of the data, if the posterior is normal (Laplace)."""
        size, (_, half) = len(self.values), np.linalg.slogdet(self.covariance)
        return self.log_density + 0.5 * (size * np.log(2.0 * np.pi) + half)


def posterior_mode(posterior: Posterior, start: Mapping[str, float] | None = None) -> Mode:
    """Search the mode of a posterior.

    Args:
        posterior: The posterior.
        start: Where the search begins, by name. Default: the means of the priors.

    Raises:
        NoMode: The search did not come to a point where the density falls in all directions. The
            message names a parameter.
    """
    from scipy.optimize import minimize

    made_by("posterior_mode", "posterior", posterior, Posterior, "Posterior(...)")
    where = f"{posterior.model.name}, mode"
    begun = posterior.middle
    start = {} if start is None else start
    if not isinstance(start, Mapping):
        raise ModelError(
            message(
                where,
                f"start is {shown(start)}.",
                "It is a dict from names of parameters to numbers.",
                f"pass {{{posterior.names[0]!r}: {begun[0]:g}}}.",
            )
        )
    for name, value in start.items():
        if name not in posterior.names:
            raise ModelError(
                message(
                    where,
                    f"{shown(name)} has no prior.",
                    f"Those with one are {', '.join(posterior.names)}.",
                    "correct the name.",
                )
            )
        begun[posterior.names.index(name)] = number(where, name, value)

    def loss(free: Vector) -> Float[Array, ""]:
        # of the density by values, so that the mode does not depend on the way to the line
        return -posterior.log_density(posterior.inside(free)[0])

    with jax.enable_x64(True):
        program = jax.jit(jax.value_and_grad(loss))
        free = np.asarray(jax.jit(posterior.outside)(begun))

        def host(free: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = jax.device_get(program(free))
            bad = not np.isfinite(value)
            return (np.inf, np.zeros_like(free)) if bad else (float(value), slope)

        if not np.isfinite(host(free)[0]):
            raise NoMode(
                message(
                    where,
                    "the search begins where the density is zero: there is not exactly one stable"
                    " solution, or a value is outside of its prior.",
                    "It goes uphill from its first point.",
                    "pass start= with other values.",
                )
            )
        free = minimize(host, free, jac=True, method="BFGS", options={"gtol": 1e-7}).x
        values = np.asarray(jax.jit(lambda free: posterior.inside(free)[0])(free))
        slopes = jax.jit(jax.value_and_grad(posterior.log_density))
        value, slope = jax.device_get(slopes(values))
        curve = _curvature(lambda v: np.asarray(slopes(v)[1]), values)
    flattest = _flattest(curve)
    if flattest is None:
        off = np.abs(slope) * np.diag(np.linalg.inv(-curve)) ** 0.5
        flattest = int(np.argmax(off)) if np.any(off > FLAT) else None
    if flattest is not None:
        near = dict(zip(posterior.names, values.round(6).tolist(), strict=True))
        raise NoMode(
            message(
                where,
                f"no mode was found: near {near} the density does not fall in all directions,"
                f" least along {posterior.names[flattest]!r}.",
                "At a mode the gradient is zero and the second derivatives are negative.",
                "pass start= with other values, or a prior that says more of that parameter.",
            )
        )
    named = dict(zip(posterior.names, values.tolist(), strict=True))
    return Mode(posterior, named, float(value), np.linalg.inv(-curve))


def _flattest(curve: np.ndarray) -> int | None:
    """Of second derivatives that are not all negative, the parameter along which they are least
    so; of such as are not finite, the one whose own is not.
    """
    bad = ~np.isfinite(curve)
    if np.any(bad):
        own = np.diag(bad)
        return int(np.argmax(own if np.any(own) else bad.sum(0)))
    roots, directions = np.linalg.eigh(-curve)
    return int(np.argmax(np.abs(directions[:, 0]))) if roots[0] <= 0.0 else None


def _curvature(slope: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    """Second derivatives, from differences of the exact gradient to fourth order: the program of
    JAX's own takes many times as long to compile.
    """
    columns = []
    for i, size in enumerate(np.maximum(np.abs(values), 1e-2)):
        step = np.zeros_like(values)
        step[i] = 1e-3 * size
        near, far = (slope(values + k * step) - slope(values - k * step) for k in (1, 2))
        columns.append((8.0 * near - far) / (12.0 * step[i]))
    curve = np.array(columns)
    return 0.5 * (curve + curve.T)


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws from a posterior.

    Args:
        values: By name, rows are chains.
        log_density: Of prior times likelihood on the line, with the factor of the way there.
        diverged: Which draws came from a trajectory that left the posterior.
        rhat: By name, the potential scale reduction, near 1 where chains agree.
        ess: By name, how many independent draws would be as good.
        priors: By name.
    """

    values: dict[str, np.ndarray]
    log_density: np.ndarray
    diverged: np.ndarray
    rhat: dict[str, float]
    ess: dict[str, float]
    priors: dict[str, Prior]

    def __repr__(self) -> str:
        rows = {
            name: f"{each.mean():.6g} +- {each.std():.2g}, R-hat {self.rhat[name]:.3f}, as good as"
            f" {self.ess[name]:,.0f} draws"
            for name, each in self.values.items()
        }
        shape = self.log_density.shape
        return lines(f"{shape[0]} chains of {shape[1]} draws, {self.diverged.sum()} diverged", rows)

    def draw(self, path: str | Path) -> None:
        """Save a picture as a PNG: the chains of each parameter over time, where they diverged, and
        their distributions over the prior.
        """
        from ._picture import draw_chains  # matplotlib, which estimation alone need not wait for

        draw_chains(self, Path(path))


def sample(
    mode: Mode,
    draws: int = 1000,
    warmup: int = 500,
    chains: int = 4,
    seed: int = 0,
    folder: str | Path | None = None,
    part: int = 50,
    report: Callable[[str], None] | None = None,
) -> Chains:
    """Draw from a posterior with the no-U-turn sampler of blackjax.

    Args:
        mode: Where the chains begin, and whose curvature is their first metric.
        draws: Of each chain, after the warm-up.
        warmup: Draws in which step sizes are adapted, in whole parts.
        chains: How many.
        seed: Of the random numbers.
        folder: Where each part of the draws is written. A call with the same arguments goes on
            where the last one was interrupted, to the same draws.
        part: Draws between two writes.
        report: Takes a line after each part.
    """
    made_by("sample", "mode", mode, Mode, "posterior_mode(posterior)")
    where = f"{mode.posterior.model.name}, sample"
    sizes = {"draws": draws, "warmup": warmup, "chains": chains, "part": part}
    for name, value in sizes.items():
        count(where, name, value, 1)
    seed = count(where, "seed", seed, 0)
    with jax.enable_x64(True):
        sampler = _Sampler(mode, warmup, chains, seed, part, where)
        store = _Store(folder, sampler.digest, where)
        state = store.get("warm") or store.put("warm", sampler.warm())
        found = []
        for i, begun in enumerate(range(0, draws, part)):
            name = f"{i:04d}"
            given = store.get(name) or store.put(name, sampler.part(state, i))
            state = state | {"position": given["position"]}
            found.append(given)
            if report is not None:
                seen = np.mean(np.concatenate([each["diverged"] for each in found], 1))
                done = min(begun + part, draws)
                report(f"{done} of {draws} draws, {100.0 * seen:.2g} % diverged")
        return sampler.chains(found, draws)


class _Sampler:
    """One program, of the next draws of all chains; step sizes and positions are data."""

    def __init__(self, mode: Mode, warmup: int, chains: int, seed: int, part: int, where: str):
        try:
            import blackjax
        except ImportError:
            raise ModelError(
                message(
                    where,
                    "blackjax is not installed.",
                    "Chains are its no-U-turn sampler.",
                    'install it: python -m pip install "jitney[sampling]".',
                )
            ) from None
        self.blackjax, self.posterior = blackjax, mode.posterior
        self.count, self.length, self.rounds = chains, part, -(-warmup // part)
        self.key = jax.random.key(seed)
        values = jnp.asarray(np.array(list(mode.values.values())))
        self.start = self.posterior.outside(values)
        by_value = jax.jacfwd(self.posterior.outside)(values)
        self.metric = by_value @ mode.covariance @ by_value.T
        self.program = _program(mode.posterior, part)

    @property
    def digest(self) -> str:
        """A digest of all that draws depend on."""
        seen = hashlib.sha256(repr((self.rounds, self.count, self.length)).encode())
        posterior = self.posterior
        for each in (
            jax.random.key_data(self.key),
            posterior.data,
            posterior.model.theta(posterior.params),
            self.start,
            self.metric,
        ):
            seen.update(np.ascontiguousarray(each).tobytes())
        words = (posterior.names, tuple(posterior.priors.values()))
        words += (posterior.start, posterior.presample)
        seen.update(repr(words).encode())
        return seen.hexdigest()

    def warm(self) -> dict[str, np.ndarray]:
        """Positions and step sizes after the warm-up: the metric is that of the mode, and the step
        of each chain grows or shrinks until four of five proposals are accepted (Robbins and Monro
        1951).
        """
        apart = jax.random.normal(jax.random.fold_in(self.key, 0), (self.count, self.start.size))
        begun = self.start + 0.5 * apart @ jnp.linalg.cholesky(self.metric).T
        # a point without a solution is no start
        there = jnp.isfinite(_densities(self.posterior)(begun))
        position = np.asarray(jnp.where(there[:, None], begun, self.start))
        state = {"position": position, "size": np.full(self.count, 0.7)}
        for i in range(self.rounds):
            given = self._next(state, i + 1)
            off = given["accepted"].mean(1) - 0.8
            size = state["size"] * np.exp(2.0 * off / (i + 1.0) ** 0.6)
            state = {"position": given["position"], "size": size}
        return state

    def part(self, state: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
        """The next draws, which depend on their number and not on what ran before."""
        return self._next(state, 1 + self.rounds + i)

    def _next(self, state: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.fold_in(self.key, number), self.count)
        return jax.device_get(self.program(keys, state, self.metric))

    def chains(self, found: list[dict[str, np.ndarray]], draws: int) -> Chains:
        """All parts together."""
        values, density, diverged = (
            np.concatenate([each[name] for each in found], 1)[:, :draws]
            for name in ("values", "log_density", "diverged")
        )
        names = self.posterior.names
        kept = {name: values[:, :, i] for i, name in enumerate(names)}
        judges = self.blackjax.diagnostics
        many = values.shape[0] > 1 and values.shape[1] > 1
        rhat, ess = (
            {name: float(judge(each)) if many else float("nan") for name, each in kept.items()}
            for judge in (judges.potential_scale_reduction, judges.effective_sample_size)
        )
        priors = dict(self.posterior.priors)
        return Chains(kept, density, diverged, rhat, ess, priors)


@lru_cache(maxsize=8)
def _densities(posterior: Posterior) -> Callable[[Array], Array]:
    """The density on the line at each of some points."""
    return jax.jit(lambda points: jax.lax.map(posterior.free_density, points))


@lru_cache(maxsize=8)
def _program(posterior: Posterior, length: int) -> Callable[..., dict[str, Array]]:
    """The next draws of all chains, one after the other: mapped by `vmap`, the loops and calls of
    the host that are in a policy take many times as long, to compile and to run.
    """
    import blackjax

    kernel, density = blackjax.nuts.build_kernel(), posterior.free_density

    def draws(given: tuple[Array, dict[str, Array], Array]) -> dict[str, Array]:
        key, state, metric = given

        def one(at: Any, key: Array) -> Any:
            at, info = kernel(key, at, density, state["size"], metric)
            values = posterior.inside(at.position)[0]
            return at, (values, at.logdensity, info.is_divergent, info.acceptance_rate)

        first = blackjax.nuts.init(state["position"], density)
        last, rows = jax.lax.scan(one, first, jax.random.split(key, length))
        names = ("values", "log_density", "diverged", "accepted")
        return {"position": last.position, **dict(zip(names, rows, strict=True))}

    @jax.jit
    def all_chains(keys: Array, state: dict[str, Array], metric: Array) -> dict[str, Array]:
        metrics = jnp.broadcast_to(metric, (len(keys), *metric.shape))
        return jax.lax.map(draws, (keys, state, metrics))

    return all_chains


@dataclass(frozen=True)
class _Store:
    """Parts on disk, of one run."""

    folder: str | Path | None
    digest: str
    where: str

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """A part that was written.

        Raises:
            ModelError: It is of another run.
        """
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        with np.load(path) as found:
            if str(found["digest"]) != self.digest:
                raise ModelError(
                    message(
                        self.where,
                        f"{path} is of another run.",
                        "Draws go on only with the same posterior, mode, seed and sizes.",
                        "pass another folder, or delete this one.",
                    )
                )
            return {key: found[key] for key in found.files if key != "digest"}

    def put(self, name: str, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Write a part, whole or not at all."""
        path = self._path(name)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part.npz")
            np.savez(draft, digest=self.digest, **given)
            draft.replace(path)
        return given

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else Path(self.folder) / f"{name}.npz"
