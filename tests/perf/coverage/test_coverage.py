"""The scoreboard of models holds: no number is wrong, no error is raw, and what was reached stays
reached.
"""

import jax
import pytest

from tests.perf.coverage._tried import cells
from tests.perf.coverage.models import ALL

# How many ways along axes are exact, at least. `python -m tests.perf.coverage --floors` prints them
# as they are.
FLOORS = {
    "MLP": 7,
    "CNN, max pooling": 7,
    "CNN, average pooling": 7,
    "batch norm (batch)": 6,
    "batch norm (ema)": 6,
    "layer norm": 7,
    "GRU": 13,
    "LSTM": 13,
    "GRU, a loss at each step": 13,
    "attention, causal, dropout": 9,
    "attention, keys given": 9,
    "diffusion": 7,
    "variational autoencoder": 7,
    "Gaussian process": 2,
    "HMC log-density": 7,
    "neural ODE, adaptive steps": 7,
    "neural ODE, given steps": 7,
    "graph network": 12,
    "language model, LSTM": 13,
    "vision transformer": 7,
    "masked language model": 9,
    "MLP mixer": 7,
    "GAN": 7,
    "U-Net": 7,
    "spectral norm": 7,
    "contrastive loss": 2,
    "neural CDE": 13,
    "latent ODE": 13,
    "normalising flow": 7,
    "neural SDE": 7,
    "heat equation": 4,
    "Kalman filter": 6,
    "hierarchical regression": 13,
    "hidden Markov model": 13,
    "stochastic volatility": 6,
    "horseshoe regression": 14,
    "normal mixture": 7,
    "proportional hazards": 3,
    "Bayesian neural network": 7,
    "Gaussian process, multivariate normal": 2,
    "capture and recapture": 13,
    "autoregression": 6,
    "graph convolution": 12,
    "graph attention": 12,
    "graph classification": 13,
    "proximal policy": 13,
    "double Q-learning": 7,
    "optimistix, Levenberg-Marquardt": 4,
    "optimistix, Gauss-Newton": 4,
    "optimistix, dogleg": 4,
    "optimistix, BFGS": 4,
    "optimistix, nonlinear CG": 4,
    "optimistix, root": 2,
    "optimistix, fixed point": 3,
    "lineax, QR": 4,
    "lineax, SVD": 2,
    "lineax, LU": 2,
    "lineax, Cholesky": 2,
    "lineax, tridiagonal": 4,
    "lineax, CG": 2,
    "lineax, GMRES": 2,
    "lineax, BiCGStab": 2,
    "diffrax, saved at times": 4,
    "diffrax, saved at times, fixed steps": 4,
    "diffrax, linear interpolation": 4,
    "diffrax, cubic interpolation": 4,
    "diffrax, backsolve adjoint": 0,
    "diffrax, direct adjoint": 0,
    "diffrax, Brownian tree": 2,
    "Equinox, rotary embedding": 4,
    "Equinox, attention": 2,
    "Equinox, convolution": 4,
    "Equinox, average pool": 4,
    "Equinox, adaptive pool": 2,
    "Equinox, layer norm": 4,
    "optax, Huber": 4,
    "optax, cross entropy": 4,
    "optax, cosine": 4,
    "optax, CTC": 4,
    "JAX stats, density": 4,
    "JAX stats, mode": 4,
    "JAX stats, ranks": 4,
    "JAX stats, standard error": 4,
    "JAX signal, detrend": 2,
    "JAX signal, convolve": 4,
    "JAX signal, correlate": 4,
    "NumPy, window": 4,
    "Python, halves": 4,
}


# The calls are counted by what is not exact in both ways.
BELOW = {
    **{f"jax.scipy.signal.fftconvolve ({mode})": 0 for mode in ("full", "same", "valid")},
    "jax.scipy.signal.welch (one segment)": 0,
    "jax.scipy.signal.detrend (linear)": 1,
    "jax.scipy.signal.istft": 1,
    "jax.scipy.stats.multivariate_normal (logpdf, pdf)": 1,
    "eqx.nn.AdaptiveAvgPool1d": 1,
    "eqx.nn.AdaptiveMaxPool1d": 1,
    "eqx.nn.AvgPool1d (3, stride 2, up)": 0,
    "eqx.nn.Conv1d (stride 2)": 0,
    "eqx.nn.MultiheadAttention": 1,
    "eqx.nn.MultiheadAttention (causal)": 1,
    "optax.losses.ntxent": 1,
}


# All of them take minutes of compiling; recurrent and convolutional ones are in
# `tests/axes/test_models.py` too.
ALWAYS = ("batch norm (batch)", "Gaussian process")


def _marks(model):
    return [] if model.name in ALWAYS else [pytest.mark.slow]


def _floor(model):
    if model.group == "calls":
        return BELOW.get(model.name, 2)
    return FLOORS[model.name]


def test_each_model_has_a_floor():
    """A new model is counted from the start."""
    assert FLOORS.keys() == {model.name for model in ALL if model.group != "calls"}
    assert BELOW.keys() <= {model.name for model in ALL if model.group == "calls"}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "model", [pytest.param(model, id=model.name, marks=_marks(model)) for model in ALL]
)
def test_a_model_is_exact_or_refused_with_a_sentence(model):
    """Against plain JAX at exact size, of values and gradients; what mathematics does not allow is
    refused.
    """
    with jax.numpy_dtype_promotion("standard"):  # models are of other people
        tried = list(cells(model))
    assert [str(cell) for cell in tried if cell.outcome in ("WRONG", "raw error")] == []
    assert [cell for cell in tried if cell.never and cell.outcome == "exact"] == []
    assert all(cell.why for cell in tried if cell.outcome == "refused")
    assert sum(cell.outcome == "exact" for cell in tried) >= _floor(model)
