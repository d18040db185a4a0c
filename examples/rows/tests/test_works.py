"""Each example against SciPy, or NumPy in float64, row by row; and that each is compared with what
one writes by hand.
"""

import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.signal
import scipy.special
import scipy.stats

from examples import rows
from examples.rows import (
    __main__,
    _sides,
    attention,
    curves,
    graphs,
    hazards,
    hmm,
    light_curves,
)

SIZES = _sides.Lengths(5, 12, 9, 16)


@pytest.mark.rest
def test_the_likelihood_of_a_sequence_is_the_sum_over_all_paths():
    """Of hidden states, whose logarithm is summed over sequences."""
    logits = [each[..., :3] for each in hmm.parameters()]
    logits[1] = logits[1][:3]
    first, move, emit = (each.astype(float) for each in logits)
    start, moves, says = (
        scipy.special.softmax(each, axis) for each, axis in ((first, 0), (move, 1), (emit, 0))
    )
    sequences = [np.array(seen, np.int32) for seen in ((3,), (1, 1, 4), (0, 7, 2, 5, 5))]

    def alone(seen: np.ndarray) -> float:
        total = 0.0
        for path in itertools.product(range(3), repeat=len(seen)):
            moved = np.prod([moves[a, b] for a, b in itertools.pairwise(path)])
            total += start[path[0]] * moved * np.prod(says[seen, path])
        return np.log(total)

    value, _ = hmm.by_jitney(logits, sequences)
    np.testing.assert_allclose(value, -sum(map(alone, sequences)), rtol=1e-5)


@pytest.mark.rest
def test_the_gradient_of_an_hmm_is_that_by_differences():
    """Of a forward algorithm in NumPy, along a direction for each parameter."""
    given, sequences = hmm.parameters(), hmm.sequences(SIZES, 0)

    def total(first: np.ndarray, move: np.ndarray, emit: np.ndarray) -> float:
        start, moves, says = (
            scipy.special.softmax(each, axis) for each, axis in ((first, 0), (move, 1), (emit, 0))
        )
        out = 0.0
        for seen in sequences:
            state = start
            for symbol in seen:
                joint = state * says[symbol]
                out -= np.log(joint.sum())
                state = joint / joint.sum() @ moves
        return out

    _, grads = hmm.by_jitney(given, sequences)
    for i, grad in enumerate(grads):
        ahead, behind = ([each.astype(float) for each in given] for _ in range(2))
        along = np.random.default_rng(i).normal(size=grad.shape)
        ahead[i] += 1e-5 * along
        behind[i] -= 1e-5 * along
        expected = (total(*ahead) - total(*behind)) / 2e-5
        np.testing.assert_allclose(np.sum(grad * along), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.rest
def test_the_periodogram_is_that_of_scipy():
    """With weights and a floating mean."""
    omega = np.linspace(1, 15, 20, dtype=np.float32)
    stars = light_curves.survey(SIZES, 0)
    found = light_curves.power(omega, *stars)
    for power, t, y, error in zip(found, *stars, strict=True):
        expected = scipy.signal.lombscargle(
            t.astype(float),
            y.astype(float),
            omega.astype(float),
            normalize=True,
            weights=error.astype(float) ** -2,
            floating_mean=True,
        )
        np.testing.assert_allclose(power, expected, rtol=1e-2, atol=1e-3)


def test_the_likelihood_of_a_light_curve_is_that_of_scipy():
    """Of a multivariate normal with the kernel and the errors as covariance."""
    stars = light_curves.survey(SIZES, 1)
    found = light_curves.likelihoods(np.float32(0.7), np.float32(1.5), *stars)
    for likelihood, *star in zip(found, *stars, strict=True):
        t, y, error = (column.astype(float) for column in star)
        covariance = 0.7**2 * np.exp(-np.abs(t[:, None] - t) / 1.5) + np.diag(error**2)
        expected = scipy.stats.multivariate_normal.logpdf(y, np.zeros(len(t)), covariance)
        np.testing.assert_allclose(likelihood, expected, rtol=1e-4, atol=1e-3)


def test_words_look_at_the_words_of_their_sentence():
    """Both results, in NumPy."""
    sentences = attention.sentences(SIZES, 0)
    heads = attention.heads()
    seen, pooled = attention.attending(heads, sentences)
    for words, got, mean in zip(sentences, seen, pooled, strict=True):
        x = words.astype(float)
        query, key, value = (x @ head for head in heads.astype(float))
        scores = query @ key.T / np.sqrt(attention.WIDTH)
        expected = x + scipy.special.softmax(scores, axis=1) @ value
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.rest
def test_messages_go_along_the_edges_of_their_graph():
    """Edge by edge, in NumPy."""
    weights, read = graphs.weights()
    made = graphs.graphs(SIZES, 0)
    for got, nodes, senders, receivers in zip(
        graphs.energies(weights, read, *made), *made, strict=True
    ):
        x = nodes.astype(float)
        for _ in range(graphs.STEPS):
            messages, arrived = np.maximum(x @ weights[0].astype(float), 0), np.zeros_like(x)
            for sender, receiver in zip(senders, receivers, strict=True):
                arrived[receiver] += messages[sender]
            x = np.tanh(x + arrived @ weights[1].astype(float))
        np.testing.assert_allclose(got, np.mean(x @ read.astype(float)), rtol=1e-4, atol=1e-5)


@pytest.mark.rest
def test_the_hazard_is_the_sum_of_one_over_those_at_risk():
    """At each death until then."""
    at = np.linspace(0, 10, 21, dtype=np.float32)
    times, died = hazards.groups(SIZES, 0)
    for got, time, dead in zip(hazards.hazards(at, times, died), times, died, strict=True):
        at_risk = np.sum(time >= time[:, None], axis=1)
        expected = [np.sum(1 / at_risk[dead & (time <= end)]) for end in at]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_the_likelihood_of_events_is_that_of_their_rate():
    """Which all events before have raised; its gradient by differences."""
    theta = np.log(np.array([0.5, 0.4, 1.5], np.float32))
    ends, times = hazards.windows(SIZES, 0)

    def total(theta: np.ndarray) -> float:
        rate, jump, decay = np.exp(theta)
        out = 0.0
        for end, time in zip(ends.astype(float), times, strict=True):
            since = time.astype(float)[:, None] - time
            raised = np.where(since > 0, jump * decay * np.exp(-decay * np.abs(since)), 0)
            area = rate * end + jump * np.sum(1 - np.exp(-decay * (end - time)))
            out -= np.sum(np.log(rate + raised.sum(axis=1))) - area
        return out

    value, grad = hazards.hawkes_by_jitney(theta, ends, times)
    at = theta.astype(float)
    np.testing.assert_allclose(value, total(at), rtol=1e-4)
    expected = scipy.optimize.approx_fprime(at, total, 1e-6)
    np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.rest
def test_each_curve_has_the_fit_of_scipy():
    """By its own solver."""
    times, values = curves.curves(SIZES, 0)
    for got, t, y in zip(curves.fits(times, values)[0], times, values, strict=True):
        expected, _ = scipy.optimize.curve_fit(
            lambda t, a, b, c: a * np.exp(-b * t) + c, t, y, p0=curves.START
        )
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", rows.NAMES)
def test_the_page_has_the_lines_of_code(name: str):
    """Of each side, as they are counted now, and those that all sides by hand share."""
    page = (Path(rows.__file__).parents[2] / "docs" / "problems" / "ragged.md").read_text()
    assert f"by hand also {_sides.shared_lines()} that all share" in page
    for work in importlib.import_module(f"examples.rows.{name}").works(full=True):
        counts = {side: _sides.lines_of(work, side) for side in work.sides}
        assert min(counts.values()) > 0
        assert f"| {counts['jitney']}, {counts['by hand']}, {counts['a length']} |" in page
        assert "one graph" not in counts or f"as one graph {counts['one graph']} lines" in page


# the others compile for longer; `nox -s full` runs all
IN_THE_GATE = ("hazards",)


@pytest.mark.rest
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in IN_THE_GATE else pytest.mark.slow)
        for name in rows.NAMES
    ],
)
def test_an_example_is_compared(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Equal results of all sides, then a line for each."""
    monkeypatch.setattr(sys, "argv", ["rows", name])
    assert __main__.main() == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {side} " in printed for side in ("jitney", "by hand", "a length"))
