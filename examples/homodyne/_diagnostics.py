"""Whether chains have mixed, and how many independent draws they are worth.

Vehtari, Gelman, Simpson, Carpenter and Buerkner, "Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16 (2021) 667-718.
"""

import numpy as np
from scipy import special, stats


def r_hat(draws: np.ndarray) -> float:
    """The larger of the rank-normalised split R-hat of the draws, and of their distances from the
    median.

    Args:
        draws: A row for each chain.
    """
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_ratio(_normal_scores(each)) for each in (halves, folded))


def effective_size(draws: np.ndarray) -> float:
    """Of the bulk: of rank-normalised split chains."""
    return _effective(_normal_scores(_split(draws)))


def _split(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(chains: np.ndarray) -> np.ndarray:
    ranks = stats.rankdata(chains, method="average").reshape(chains.shape)
    return special.ndtri((ranks - 0.375) / (chains.size + 0.25))


def _ratio(chains: np.ndarray) -> float:
    count = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean()
    between = count * chains.mean(axis=1).var(ddof=1)
    if within == 0:
        return np.inf if between else 1.0
    return float(np.sqrt(((count - 1) / count * within + between / count) / within))


def _effective(chains: np.ndarray) -> float:
    many, count = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * count, axis=1)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :count] / count
    within = covariances[:, 0].mean() * count / (count - 1)
    total = within * (count - 1) / count
    if many > 1:
        total += chains.mean(axis=1).var(ddof=1)
    if total == 0:
        return float(chains.size)
    rho = 1 - (within - covariances.mean(axis=0)) / total
    rho[0] = 1.0
    # Geyer: sums of pairs are positive and fall.
    pairs = rho[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(pairs < 0)) if np.any(pairs < 0) else len(pairs)
    falling = np.minimum.accumulate(pairs[:end])
    tau = -1 + 2 * falling.sum()
    if end < len(pairs):
        tau += max(0.0, rho[2 * end])
    return float(chains.size / max(tau, 1 / np.log10(chains.size)))
