"""The public calls of four libraries along the data axis: all of `jax.scipy.stats` (a row has all
methods of a distribution), `jax.scipy.signal`, `eqx.nn` and `optax.losses` (a row a call). Losses
of the solvers are in `libraries`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.signal as signal
import jax.scipy.stats as stats
import optax.losses as losses
from jaxtyping import Array, Float

from ._arrays import KEY
from ._model import PAIRS, Model, never
from .libraries import Loss, Params, Vector, curve

Call = Callable[[Any, Any, Any], Any]
"""Two parameters, times in order and what was measured -> what is made of them."""


def _count(t: Any) -> Any:
    return jnp.round(3 * t)


def _rows(k: Any, t: Any, y: Any) -> Any:
    return k[0] * jnp.stack([t, y, t * y, t + y], axis=1)


def _channels(k: Any, t: Any, y: Any) -> Any:
    return _rows(k, t, y).T


def _image(k: Any, t: Any, y: Any) -> Any:
    return _rows(k, t, y)[None]


def _covariance(k: Any, t: Any) -> Any:
    return jnp.eye(t.shape[0], dtype=t.dtype) + 0.1 * k[0] * jnp.exp(-((t[:, None] - t) ** 2))


def _placed(k: Any, t: Any, y: Any) -> Any:
    return y, k[0] * t, k[1]


DENSITIES: dict[str, tuple[str, Call]] = {
    "bernoulli": ("cdf logpmf pmf ppf", lambda k, t, y: (_count(t) % 2, k[1] * t)),
    "beta": ("cdf logcdf logpdf logsf pdf sf", lambda k, t, y: (t, 2 + t, y, 0, k[0])),
    "betabinom": ("logpmf pmf", lambda k, t, y: (_count(t), 4, k[0] + t, y)),
    "binom": ("logpmf pmf", lambda k, t, y: (_count(t), 4, 0.3 * k[0] * t)),
    "cauchy": ("cdf isf logcdf logpdf logsf pdf ppf sf", _placed),
    "chi2": ("cdf logcdf logpdf logsf pdf sf", lambda k, t, y: (y, 2 * k[0] + t)),
    "dirichlet": ("logpdf pdf", lambda k, t, y: (jax.nn.softmax(y), k[0] + t)),
    "expon": ("cdf logcdf logpdf logsf pdf ppf sf", lambda k, t, y: (y, 0.3 * t, k[0])),
    "gamma": ("cdf logcdf logpdf logsf pdf sf", lambda k, t, y: (y, k[0] + t)),
    "gennorm": ("cdf logpdf pdf", lambda k, t, y: (y - 1, k[0] + t)),
    "geom": ("logpmf pmf", lambda k, t, y: (_count(t) + 1, 0.05 + 0.3 * k[0] * t)),
    "gumbel_l": ("cdf logcdf logpdf logsf pdf ppf sf", lambda k, t, y: (y, k[0] * t, 0.6)),
    "gumbel_r": ("cdf logcdf logpdf logsf pdf ppf sf", lambda k, t, y: (y, k[0] * t, 0.6)),
    "laplace": ("cdf logpdf pdf", _placed),
    "logistic": ("cdf isf logpdf pdf ppf sf", _placed),
    "multinomial": (
        "logpmf pmf",
        lambda k, t, y: (
            _count(t).astype("i4"),
            jnp.sum(_count(t).astype("i4")),
            jax.nn.softmax(k[0] * y),
        ),
    ),
    "multivariate_normal": ("logpdf pdf", lambda k, t, y: (y, t, _covariance(k, t))),
    "nbinom": ("logpmf pmf", lambda k, t, y: (_count(t), 1 + k[0], 0.05 + 0.3 * k[0] * t)),
    "norm": ("cdf isf logcdf logpdf logsf pdf ppf sf", _placed),
    "pareto": ("cdf logcdf logpdf logsf pdf ppf sf", lambda k, t, y: (y + 1, k[0])),
    "poisson": ("cdf logpmf pmf", lambda k, t, y: (_count(t), k[0] * y)),
    "t": ("logpdf pdf", lambda k, t, y: (y, 2 * k[0], t, k[1])),
    "truncnorm": ("cdf logcdf logpdf logsf pdf sf", lambda k, t, y: (t, -k[0], k[0] + t)),
    "uniform": ("cdf logpdf pdf ppf", lambda k, t, y: (t, -0.1 * k[1] * y, 2 * k[0])),
    "vonmises": ("logpdf pdf", lambda k, t, y: (y, 0.1 + k[0] * t)),
    "wrapcauchy": ("logpdf pdf", lambda k, t, y: (y, 0.05 + 0.3 * k[0] * t)),
}
"""Distribution -> its methods, and the arguments of them. Those of `ppf` and `isf` begin with the
probabilities `t`.
"""


def _density(name: str, methods: str, arguments: Call) -> Call:
    def call(k: Any, t: Any, y: Any) -> Any:
        x, *rest = arguments(k, t, y)
        return [
            getattr(getattr(stats, name), method)(t if method in ("ppf", "isf") else x, *rest)
            for method in methods.split()
        ]

    return call


def _kde(k: Any, t: Any, y: Any) -> Any:
    return stats.gaussian_kde(k[0] * t, weights=jnp.exp(y))


def _few(t: Any) -> Any:
    return jnp.arange(3, dtype=t.dtype)


OTHER_STATS: dict[str, Call] = {
    "poisson.entropy": lambda k, t, y: stats.poisson.entropy(k[0] * y),
    "multivariate_normal.logpdf (rows)": lambda k, t, y: stats.multivariate_normal.logpdf(
        _rows(k, t, y), jnp.zeros(4, t.dtype), (1 + k[1]) * jnp.eye(4, dtype=t.dtype)
    ),
    "gaussian_kde.evaluate": lambda k, t, y: _kde(k, t, y)(_few(t)),
    "gaussian_kde.pdf": lambda k, t, y: _kde(k, t, y).pdf(_few(t)),
    "gaussian_kde.logpdf": lambda k, t, y: _kde(k, t, y).logpdf(_few(t)),
    "gaussian_kde.logpdf (at the data)": lambda k, t, y: stats.gaussian_kde(k[0] * _few(y)).logpdf(
        t
    ),
    "gaussian_kde.integrate_box_1d": lambda k, t, y: _kde(k, t, y).integrate_box_1d(0.2, 0.9),
    "gaussian_kde.integrate_gaussian": lambda k, t, y: _kde(k, t, y).integrate_gaussian(0.3, 0.2),
    "gaussian_kde.integrate_kde": lambda k, t, y: _kde(k, t, y).integrate_kde(
        stats.gaussian_kde(_few(t))
    ),
    "gaussian_kde.resample": lambda k, t, y: _kde(k, t, y).resample(KEY, (3,)),
    "mode": lambda k, t, y: k[0] * stats.mode(jnp.round(4 * t)).mode,
    "mode (count)": lambda k, t, y: k[0] * stats.mode(jnp.round(4 * t)).count,
    "sem": lambda k, t, y: stats.sem(k[0] * t * y),
    "sem (without NaNs)": lambda k, t, y: stats.sem(k[0] * t * y, nan_policy="omit"),
    **{
        f"rankdata ({method})": lambda k, t, y, method=method: (
            k[0] * t * stats.rankdata(jnp.round(4 * t), method)
        )
        for method in ("average", "min", "max", "dense", "ordinal")
    },
}


def _three(t: Any) -> Any:
    return jnp.asarray([1.0, -2.0, 0.5], t.dtype)


def _plate(t: Any) -> Any:
    return jnp.asarray([[1.0, -2.0], [0.5, 0.3]], t.dtype)


SIGNALS: dict[str, Call] = {
    **{
        f"{name} ({mode})": lambda k, t, y, name=name, mode=mode: getattr(signal, name)(
            k[0] * t * y, _three(t), mode
        )
        for name in ("convolve", "correlate", "fftconvolve")
        for mode in ("full", "same", "valid")
    },
    **{
        f"{name} ({mode})": lambda k, t, y, name=name, mode=mode: getattr(signal, name)(
            _rows(k, t, y), _plate(t), mode
        )
        for name in ("convolve2d", "correlate2d")
        for mode in ("full", "same", "valid")
    },
    "convolve (of the data)": lambda k, t, y: signal.convolve(k[0] * t, y),
    "correlate (of the data)": lambda k, t, y: signal.correlate(k[0] * t, y, "full", "direct"),
    "fftconvolve (other axis)": lambda k, t, y: signal.fftconvolve(
        _rows(k, t, y), _rows(k, y, t), axes=1
    ),
    "detrend (constant)": lambda k, t, y: signal.detrend(k[0] * t * y, type="constant"),
    "detrend (linear)": lambda k, t, y: signal.detrend(k[0] * t * y),
    "detrend (other axis)": lambda k, t, y: signal.detrend(_rows(k, t, y), axis=1),
    "welch": lambda k, t, y: signal.welch(k[0] * y, nperseg=4)[1],
    "welch (median)": lambda k, t, y: signal.welch(k[0] * y, nperseg=4, average="median")[1],
    "welch (one segment)": lambda k, t, y: signal.welch(k[0] * y, nperseg=t.shape[0])[1],
    "welch (other axis)": lambda k, t, y: signal.welch(_rows(k, t, y), nperseg=4)[1],
    "csd": lambda k, t, y: jnp.abs(signal.csd(k[0] * y, t, nperseg=4)[1]),
    "stft": lambda k, t, y: jnp.abs(signal.stft(k[0] * y, nperseg=4)[2]) ** 2,
    "stft (inside)": lambda k, t, y: (
        jnp.abs(signal.stft(k[0] * y, nperseg=4, boundary=None, padded=False)[2]) ** 2
    ),
    "istft": lambda k, t, y: signal.istft(_rows(k, t, y)[:, :3].T, nperseg=4)[1],
}


def _layer(name: str, *sizes: Any, **options: Any) -> Any:
    made = getattr(eqx.nn, name)
    return made(*sizes, **options)


def _each(name: str, *sizes: Any, **options: Any) -> Call:
    """The layer of each point."""
    return lambda k, t, y: jax.vmap(_layer(name, *sizes, **options))(_rows(k, t, y))


def _along(name: str, *sizes: Any, **options: Any) -> Call:
    """The layer along the axis, of four channels."""
    return lambda k, t, y: _layer(name, *sizes, **options)(_channels(k, t, y))


def _flat(name: str, *sizes: Any, **options: Any) -> Call:
    """The layer of two dimensions, of an image of one channel."""
    return lambda k, t, y: _layer(name, *sizes, **options)(_image(k, t, y))


def _cell(name: str, read: Callable[[Any], Any]) -> Call:
    def call(k: Any, t: Any, y: Any) -> Any:
        cell = _layer(name, 4, 3, key=KEY)
        zero = jnp.zeros(3, t.dtype)
        state = (zero, zero) if name == "LSTMCell" else zero
        return read(jax.lax.scan(lambda h, x: (cell(x, h), None), state, _rows(k, t, y))[0])

    return call


def _own_size(name: str) -> Call:
    return lambda k, t, y: _layer(name, t.shape, use_weight=False, use_bias=False)(k[0] * t * y)


def _attention(k: Any, t: Any, y: Any, *, keys: bool = False, causal: bool = False) -> Any:
    rows = _rows(k, t, y)
    others = rows if not keys else jnp.outer(_few(t), jnp.ones(4, t.dtype))
    place = jnp.arange(t.shape[0])
    mask = place[:, None] >= place if causal else None
    return eqx.nn.MultiheadAttention(2, 4, key=KEY)(rows, others, others, mask)


def _batch_norm(k: Any, t: Any, y: Any, mode: Any) -> Any:
    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "rows", mode=mode)
    rows = _rows(k, t, y)
    return jax.vmap(layer, axis_name="rows", in_axes=(0, None), out_axes=(0, None))(rows, state)[0]


def _spectral(k: Any, t: Any, y: Any) -> Any:
    linear = eqx.nn.Linear(4, 2, key=KEY)
    layer, state = eqx.nn.make_with_state(eqx.nn.SpectralNorm)(linear, "weight", key=KEY)
    return jax.vmap(lambda row: layer(row, state)[0])(_rows(k, t, y))


def _weight_norm(k: Any, t: Any, y: Any) -> Any:
    return jax.vmap(eqx.nn.WeightNorm(eqx.nn.Linear(4, 2, key=KEY)))(_rows(k, t, y))


def _shared(k: Any, t: Any, y: Any) -> Any:
    first, second = eqx.nn.Linear(4, 4, key=KEY), eqx.nn.Linear(4, 4, key=KEY)
    shared = eqx.nn.Shared(
        (first, second), lambda pair: pair[1].weight, lambda pair: pair[0].weight
    )
    return jax.vmap(lambda row: shared()[1](shared()[0](row)))(_rows(k, t, y))


def _sequential(k: Any, t: Any, y: Any) -> Any:
    linear = eqx.nn.Linear(4, 3, key=KEY)
    layers = eqx.nn.Sequential([linear, eqx.nn.Lambda(jnp.tanh), eqx.nn.Identity()])
    return jax.vmap(layers)(_rows(k, t, y))


LAYERS: dict[str, Call] = {
    "GRUCell": _cell("GRUCell", lambda state: state),
    "LSTMCell": _cell("LSTMCell", lambda state: state[0]),
    "Linear": _each("Linear", 4, 2, key=KEY),
    "MLP": _each("MLP", 4, 2, 5, 2, key=KEY),
    "Sequential": _sequential,
    "Shared": _shared,
    "PReLU": lambda k, t, y: eqx.nn.PReLU(0.3)(k[0] * (t - 0.5)),
    "Embedding": lambda k, t, y: (
        (k[0] * t)[:, None] * jax.vmap(_layer("Embedding", 5, 3, key=KEY))(_count(y).astype("i4"))
    ),
    "Dropout": lambda k, t, y: eqx.nn.Dropout(0.3)(_rows(k, t, y), key=KEY),
    "LayerNorm": _each("LayerNorm", 4),
    "LayerNorm (of the axis)": _own_size("LayerNorm"),
    "RMSNorm": _each("RMSNorm", 4),
    "RMSNorm (of the axis)": _own_size("RMSNorm"),
    "GroupNorm": _along("GroupNorm", 2, 4),
    "GroupNorm (of each)": _each("GroupNorm", 2, 4),
    "BatchNorm (batch)": lambda k, t, y: _batch_norm(k, t, y, "batch"),
    "BatchNorm (ema)": lambda k, t, y: _batch_norm(k, t, y, "ema"),
    "WeightNorm": _weight_norm,
    "SpectralNorm": _spectral,
    "MultiheadAttention": _attention,
    "MultiheadAttention (causal)": lambda k, t, y: _attention(k, t, y, causal=True),
    "MultiheadAttention (keys given)": lambda k, t, y: _attention(k, t, y, keys=True),
    "RotaryPositionalEmbedding": lambda k, t, y: eqx.nn.RotaryPositionalEmbedding(4)(
        _rows(k, t, y)
    ),
    "Conv1d": _along("Conv1d", 4, 2, 3, key=KEY),
    "Conv1d (stride 2)": _along("Conv1d", 4, 2, 3, stride=2, padding=1, key=KEY),
    "Conv1d (dilation 2)": _along("Conv1d", 4, 2, 3, padding=2, dilation=2, key=KEY),
    "Conv1d (same)": _along("Conv1d", 4, 2, 3, padding="SAME", key=KEY),
    **{
        f"Conv1d ({mode.lower()})": _along("Conv1d", 4, 2, 3, padding=1, padding_mode=mode, key=KEY)
        for mode in ("REFLECT", "REPLICATE", "CIRCULAR")
    },
    "Conv2d": _flat("Conv2d", 1, 2, 3, padding=1, key=KEY),
    "Conv3d": lambda k, t, y: _layer("Conv3d", 1, 1, 3, padding=1, key=KEY)(
        _image(k, t, y)[..., None]
    ),
    "ConvTranspose1d": _along("ConvTranspose1d", 4, 2, 3, key=KEY),
    "ConvTranspose1d (stride 2)": _along("ConvTranspose1d", 4, 2, 3, stride=2, key=KEY),
    "ConvTranspose1d (same)": _along("ConvTranspose1d", 4, 2, 3, padding="SAME", key=KEY),
    "ConvTranspose1d (circular)": _along(
        "ConvTranspose1d", 4, 2, 3, padding="SAME", padding_mode="CIRCULAR", key=KEY
    ),
    "ConvTranspose2d": _flat("ConvTranspose2d", 1, 2, 3, stride=2, key=KEY),
    **{
        f"{kind}Pool1d ({title})": _along(f"{kind}Pool1d", *sizes, **options)
        for kind in ("Avg", "Max")
        for title, sizes, options in (
            ("3, stride 1", (3,), {}),
            ("2, stride 2", (2, 2), {}),
            ("3, stride 2, padded", (3, 2), {"padding": 1}),
            ("3, stride 2, up", (3, 2), {"use_ceil": True}),
        )
    },
    "AvgPool2d": _flat("AvgPool2d", 2, 2),
    "MaxPool2d": _flat("MaxPool2d", 2, 2),
    "AdaptiveAvgPool1d": _along("AdaptiveAvgPool1d", 3),
    "AdaptiveMaxPool1d": _along("AdaptiveMaxPool1d", 3),
    "AdaptiveAvgPool1d (of one)": _along("AdaptiveAvgPool1d", 1),
    "AdaptiveMaxPool1d (of one)": _along("AdaptiveMaxPool1d", 1),
    "AdaptiveAvgPool1d (of each)": lambda k, t, y: jax.vmap(eqx.nn.AdaptiveAvgPool1d(2))(
        _rows(k, t, y)[:, None]
    ),
}


def _pairs(k: Any, t: Any) -> Any:
    """Two scores of each point."""
    return jnp.outer(t, k)


def _class(y: Any) -> Any:
    return (y > 1.4).astype("i4")


def _hot(y: Any) -> Any:
    return jax.nn.one_hot(_class(y), 2, dtype=y.dtype)


def _score(k: Any, t: Any) -> Any:
    return k[0] * jnp.exp(-k[1] * t) - 1


def _sign(y: Any) -> Any:
    return jnp.sign(y - 1.4)


def _ctc(name: str) -> Call:
    def call(k: Any, t: Any, y: Any) -> Any:
        logits = jnp.outer(t, jnp.concatenate([k, -k]))[None]
        labels = jnp.ones((1, 3), jnp.int32)
        nothing = jnp.zeros(logits.shape[:2])
        return getattr(losses, name)(logits, nothing, labels, jnp.zeros(labels.shape))

    return call


def _losses(names: str, of: Callable[[Any, Any, Any], tuple[Any, ...]]) -> dict[str, Call]:
    """Losses of these names, of the arguments that are made of the points."""

    def loss_of(name: str) -> Call:
        return lambda k, t, y: getattr(losses, name)(*of(k, t, y))

    return {name: loss_of(name) for name in names.split()}


LOSSES: dict[str, Call] = {
    **_losses(
        "cosine_distance cosine_similarity huber_loss l2_loss log_cosh squared_error"
        " ranking_softmax_loss",
        lambda k, t, y: (_score(k, t), y),
    ),
    **_losses("hinge_loss perceptron_loss", lambda k, t, y: (_score(k, t), _sign(y))),
    **_losses(
        "binary_dice_loss sigmoid_binary_cross_entropy sigmoid_focal_loss sparsemax_loss",
        lambda k, t, y: (_score(k, t), _class(y).astype(t.dtype)),
    ),
    **_losses(
        "dice_loss multiclass_generalized_dice_loss poly_loss_cross_entropy"
        " safe_softmax_cross_entropy softmax_cross_entropy",
        lambda k, t, y: (_pairs(k, t), _hot(y)),
    ),
    **_losses(
        "multiclass_hinge_loss multiclass_perceptron_loss multiclass_sparsemax_loss"
        " softmax_cross_entropy_with_integer_labels",
        lambda k, t, y: (_pairs(k, t), _class(y)),
    ),
    **{
        f"{name}{title}": lambda k, t, y, name=name, of=of: getattr(losses, name)(*of(k, t, y))
        for name in ("convex_kl_divergence", "generalized_kl_divergence", "kl_divergence")
        for title, of in (
            ("", lambda k, t, y: (jax.nn.log_softmax(_pairs(k, t)), 0.5 * _hot(y) + 0.25)),
            (" (of the axis)", lambda k, t, y: (jax.nn.log_softmax(k[0] * t), jax.nn.softmax(y))),
        )
    },
    "kl_divergence_with_log_targets": lambda k, t, y: losses.kl_divergence_with_log_targets(
        jax.nn.log_softmax(_pairs(k, t)), jax.nn.log_softmax(_pairs(k, y))
    ),
    "smooth_labels": lambda k, t, y: losses.smooth_labels(_pairs(k, t), 0.1),
    "softmax_cross_entropy (of the axis)": lambda k, t, y: losses.softmax_cross_entropy(
        k[0] * t, jax.nn.softmax(y)
    ),
    "triplet_margin_loss": lambda k, t, y: losses.triplet_margin_loss(
        _pairs(k, t), _pairs(k, y), _pairs(k, y * t)
    ),
    "ntxent": lambda k, t, y: losses.ntxent(_rows(k, t, y), _class(y), 0.5),
    "make_fenchel_young_loss": lambda k, t, y: losses.make_fenchel_young_loss(
        jax.scipy.special.logsumexp
    )(_pairs(k, t), _hot(y)),
    **{name: _ctc(name) for name in ("ctc_loss", "ctc_loss_with_forward_probs")},
}

CALLS: dict[str, Call] = {
    **{
        f"jax.scipy.stats.{name} ({', '.join(methods.split())})": _density(name, methods, arguments)
        for name, (methods, arguments) in DENSITIES.items()
    },
    **{f"jax.scipy.stats.{name}": call for name, call in OTHER_STATS.items()},
    **{f"jax.scipy.signal.{name}": call for name, call in SIGNALS.items()},
    **{f"eqx.nn.{name}": call for name, call in LAYERS.items()},
    **{f"optax.losses.{name}": call for name, call in LOSSES.items()},
}


def _loss(call: Call) -> Loss:
    """A number of all that is made."""

    def loss(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        made = jax.tree.leaves(call(p["k"], t, y))
        return sum((jnp.mean(leaf + leaf**2) for leaf in made), jnp.zeros((), t.dtype))

    return loss


_FOURIER = (
    "it is a Fourier transform of the whole axis: each number of it is of all elements and of the"
    " size, and none of it is one of a longer axis"
)
_FACTOR = (
    "each element of a factor depends on all points before it: the matrix of all pairs is needed"
    " whole"
)
_NEVER = {
    **{
        f"jax.scipy.signal.{name}": never("points", ("pad", "chunk"), _FOURIER)
        for name in (
            "fftconvolve (full)",
            "fftconvolve (same)",
            "fftconvolve (valid)",
            "welch (one segment)",
        )
    },
    "jax.scipy.stats.multivariate_normal (logpdf, pdf)": never("points", ("chunk",), _FACTOR),
    "eqx.nn.MultiheadAttention": never("points", ("chunk",), PAIRS),
    "eqx.nn.MultiheadAttention (causal)": never("points", ("chunk",), PAIRS),
    "optax.losses.ntxent": never("points", ("chunk",), PAIRS),
}
"""Rows that mathematics does not allow."""


def as_model(name: str, call: Call) -> Model:
    """A row of the board."""
    return Model(
        name,
        _loss(call),
        curve,
        {"points": 11},
        "p",
        _NEVER.get(name, {}),
        group="calls",
        ways=("pad", "chunk"),
        of=("gradient",),
        wide_tolerance=1e-9,
    )


MODELS = tuple(as_model(name, call) for name, call in CALLS.items())
