"""The mathematics of each example against a closed form, SciPy or NumPy; that each runs; and that
notebooks are what the scripts say.
"""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.signal
import scipy.stats

import jitney
from examples.gallery import (
    _card,
    classifier,
    ensemble,
    gaussian_process,
    kalman,
    monte_carlo,
    neural_ode,
    notebooks,
    pinn,
    ragged_rnn,
)

HERE = Path(notebooks.__file__).parent


def layered(net: eqx.nn.MLP, x: np.ndarray) -> np.ndarray:
    """A network of tanh in NumPy, in float64."""
    *hidden, last = [
        (np.asarray(layer.weight, float), np.asarray(layer.bias, float)) for layer in net.layers
    ]
    for weight, bias in hidden:
        x = np.tanh(weight @ x + bias)
    return last[0] @ x + last[1]


@pytest.mark.rest
def test_the_neural_ode_is_what_scipy_integrates():
    """The misfit of each trajectory, of a field that has learnt nothing, to the error of Heun's
    method at its step.
    """
    field, seen = neural_ode.fresh()[0], neural_ode.trajectories(5, 5)

    def path(start: np.ndarray) -> np.ndarray:
        return scipy.integrate.solve_ivp(
            lambda t, y: layered(field, y), (0, 2), start, t_eval=neural_ode.TIMES, rtol=1e-8
        ).y.T

    value, _ = neural_ode.gradient(field, seen, neural_ode.TIMES)
    np.testing.assert_allclose(
        value, np.mean((np.stack([path(one[0]) for one in seen]) - seen) ** 2), rtol=1e-3
    )


@pytest.mark.rest
def test_the_marginal_likelihood_is_that_of_scipy():
    """Of a multivariate normal with the kernel as covariance, at a size that is padded."""
    x, y = gaussian_process.survey(70)
    length, scale, noise = np.exp(gaussian_process.START.astype(float))
    covariance = scale**2 * np.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise**2 * np.eye(
        x.size
    )
    value, _ = gaussian_process.padded.value_and_grad(gaussian_process.START, x, y, wrt="theta")
    np.testing.assert_allclose(
        value, -scipy.stats.multivariate_normal.logpdf(y, np.zeros(x.size), covariance), rtol=1e-4
    )


@pytest.mark.rest
def test_the_fit_of_the_process_finds_its_noise():
    """The data have noise of a tenth."""
    x, y = gaussian_process.survey(100)
    assert 0.07 < np.exp(gaussian_process.fit(x, y)[2]) < 0.14


@pytest.mark.rest
def test_the_rnn_reads_to_the_end_of_what_is_padded():
    """The loss of sequences of 50, in a program of 64, is that of a GRU in NumPy."""
    net, state = ragged_rnn.fresh()
    sequences, truth = ragged_rnn.waves(50)
    cell = net.cell
    wi, wh, b, bn = (
        np.asarray(leaf, float) for leaf in (cell.weight_ih, cell.weight_hh, cell.bias, cell.bias_n)
    )
    hidden = np.zeros((len(truth), cell.hidden_size))
    for step in sequences.T.astype(float):
        given, kept = step[:, None] @ wi.T + b, hidden @ wh.T
        (ri, zi, ni), (rh, zh, nh) = np.split(given, 3, 1), np.split(kept, 3, 1)
        reset, update = 1 / (1 + np.exp(-(ri + rh))), 1 / (1 + np.exp(-(zi + zh)))
        new = np.tanh(ni + reset * (nh + bn))
        hidden = new + update * (hidden - new)
    said = hidden @ np.asarray(net.head.weight, float)[0] + np.asarray(net.head.bias, float)[0]
    np.testing.assert_allclose(
        ragged_rnn.padded(net, state, sequences, truth)[2], np.mean((said - truth) ** 2), rtol=1e-4
    )


@pytest.mark.rest
def test_each_member_has_a_loss_of_its_own():
    """That of its weights, in NumPy."""
    nets, state = ensemble.members(30)
    x, y = ensemble.data()
    said = [[layered(ensemble.member(nets, i), point)[0] for point in x] for i in range(3)]
    np.testing.assert_allclose(
        ensemble.kept(nets, state, x, y)[2][:3], np.mean((np.array(said) - y) ** 2, 1), rtol=1e-4
    )


@pytest.mark.rest
def test_a_step_of_all_by_hand_has_the_same_weights():
    """And the same losses, as that of jitney."""
    together, points = ensemble.members(5), ensemble.data()
    step, *begin = ensemble.by_hand(together[0])
    nets, _, losses = ensemble.kept(*together, *points)
    arrays, _, by_hand = step(*begin, *points)
    np.testing.assert_allclose(by_hand, losses, rtol=1e-6)
    for ours, theirs in zip(jax.tree.leaves(eqx.filter(nets, eqx.is_array)), arrays, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.rest
def test_a_step_of_the_drum_by_hand_has_the_same_weights():
    """And the same loss, as that of jitney."""
    (net, state), places = pinn.fresh(), pinn.points(16)
    step, *begin = pinn.by_hand(net)
    net, _, loss = pinn.step(net, state, places)
    arrays, _, by_hand = step(*begin, places)
    np.testing.assert_allclose(by_hand, loss, rtol=1e-5)
    for ours, theirs in zip(jax.tree.leaves(eqx.filter(net, eqx.is_array)), arrays, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_the_load_is_that_of_the_known_solution():
    """Whose Laplacian is taken by differences."""
    h, at = 1e-3, np.array([0.3, 0.4])
    middle, *around = (
        np.prod(np.sin(np.pi * np.array([1, 2]) * (at + h * np.array(d))))
        for d in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
    )
    np.testing.assert_allclose((sum(around) - 4 * middle) / h**2 + pinn.load(at), 0, atol=1e-3)


@pytest.mark.rest
def test_the_hessian_of_the_skin_is_that_by_differences():
    """In NumPy and float64."""
    net, at, h = pinn.fresh()[0], np.array([0.3, 0.6]), 1e-4

    def height(at: np.ndarray) -> float:
        return np.prod(at * (1 - at)) * layered(net, at)[0]

    e = h * np.eye(2)
    expected = [
        [
            (height(at + a + b) - height(at + a - b) - height(at - a + b) + height(at - a - b))
            / (4 * h**2)
            for a in e
        ]
        for b in e
    ]
    np.testing.assert_allclose(
        pinn.skin.hessian(net, at.astype(np.float32)), expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.rest
def test_a_convolution_in_bfloat16_is_of_rounded_factors():
    """Correlated by SciPy in float64: sums are not rounded to eight bits."""
    conv, images = classifier.fresh()[0].first, classifier.pictures(1)[0]
    rounded, kernels = (
        np.asarray(jax.numpy.asarray(a, "bfloat16"), float) for a in (images[0], conv.weight[:, 0])
    )
    expected = [
        scipy.signal.correlate2d(np.pad(rounded, 1), kernel, "valid")[::2, ::2]
        for kernel in kernels
    ]
    low = jitney.optimize(precision="bf16")(lambda conv, image: conv(image[None]))
    np.testing.assert_allclose(
        low(conv, images[0]), np.stack(expected) + np.asarray(conv.bias), rtol=1e-4, atol=1e-5
    )


@pytest.mark.rest
def test_the_classifier_by_hand_has_the_same_loss_and_gradient():
    """The loss to float32's digits, since both round the same factors; gradients to bfloat16's,
    since by hand a cotangent is rounded once it is whole.
    """
    net, state = classifier.fresh()
    arrays, batch = jax.tree.leaves(net), classifier.pictures(32)
    _, ours, loss = classifier.in_bf16(net, state, *batch)
    _, theirs, by_hand = classifier.by_hand(arrays, classifier.adam.init(arrays), *batch)
    np.testing.assert_allclose(by_hand, loss, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(ours[0].mu), theirs[0].mu, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-2 * np.abs(a).max())


def test_the_filter_has_the_likelihood_of_all_times_at_once():
    """That of one normal vector, whose covariance is put together from the moves."""
    steps = 8
    _, seen = kalman.walks(jax.device_count(), steps)
    move, push = kalman.MOVE.astype(float), float(kalman.FORCE) * kalman.PUSHED.astype(float)
    covariance, states = np.zeros((steps, steps)), kalman.BEFORE.astype(float)
    for i in range(steps):
        ahead = states
        for j in range(i, steps):
            covariance[i, j] = covariance[j, i] = ahead[0, 0]
            ahead = move @ ahead
        states = move @ states @ move.T + push
    covariance += float(kalman.NOISE) * np.eye(steps)
    with jitney.mesh(data=-1):
        likelihoods, _ = kalman.by_jitney(kalman.FORCE, kalman.NOISE, seen)
    expected = [
        scipy.stats.multivariate_normal.logpdf(track, np.zeros(steps), covariance) for track in seen
    ]
    np.testing.assert_allclose(likelihoods, expected, rtol=1e-4)


def test_the_price_is_that_of_black_and_scholes():
    """And so is the delta, within four standard errors of 2**18 draws."""
    draws = 2**18
    price, delta, square = (float(x) for x in monte_carlo.streamed(draws, 2**16))
    expected, slope = monte_carlo.black_scholes(100.0)
    assert abs(price - expected) < 4 * np.sqrt((square - price**2) / draws)
    # the payoff's slope is at most the growth, whose mean square is 1.13
    assert abs(delta - slope) < 4 * np.sqrt(1.3 / draws)


# the others compile for longer; `nox -s full` runs all
IN_THE_GATE = ("gaussian_process", "kalman")


@pytest.mark.rest
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in IN_THE_GATE else pytest.mark.slow)
        for name in _card.NAMES
    ],
)
def test_an_example_runs_and_leaves_its_card(name: str, tmp_path: Path):
    """Plan, equal numbers, figures and a small picture, and nothing of this machine in the plan."""
    card = _card.run(name, tmp_path, full=False)
    assert card.plan
    assert card.measured
    assert "/" not in card.plan.replace("rows/s", "")
    assert 1_000 < (tmp_path / f"{name}.svg").stat().st_size < 60_000
    assert _card.kept(name, tmp_path) == card


@pytest.mark.parametrize("name", _card.NAMES)
def test_a_notebook_is_that_of_its_script(name: str):
    """`python -m examples.gallery.notebooks` writes them; no output is kept."""
    text = (HERE / "notebooks" / f"{name}.ipynb").read_text()
    assert text == notebooks.text(name)
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"])


@pytest.mark.rest
def test_the_cells_of_a_notebook_run(capsys: pytest.CaptureFixture[str]):
    """From top to bottom, in one process."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebooks.notebook("kalman")["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "kalman.ipynb", "exec"), names)
    assert "the devices send each other nothing" in capsys.readouterr().out


@pytest.mark.parametrize("name", _card.NAMES)
def test_the_page_has_the_code_of_the_example(name: str):
    """Function, decorator line and words; `python docs/gallery.py` writes it anew."""
    page, source = (
        (HERE.parents[1] / "docs" / "gallery.md").read_text(),
        (HERE / f"{name}.py").read_text(),
    )
    shown = [
        code
        for heading, code in notebooks.cells(source)
        if heading.startswith(("The function", "The decorator line"))
    ]
    words = (_card.example(name).__doc__ or "").strip().partition("\n\n")[2]
    assert [part for part in (*shown, words) if part not in page] == []
