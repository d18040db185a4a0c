"""`memory=`: chunks of a size that the compiled program stays under it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array, Float

import jitney
from jitney import lazy_derivatives, optimize
from jitney._jax.xla.memory import Fit, Misfit, fit, text
from jitney.errors import AxisError, ContractError
from tests._examples import examples

pytestmark = pytest.mark.real_xla

RNG = np.random.default_rng(0)
N = 60_000


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def variance(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, ""]:
    return jnp.var(jnp.sin(x[:, None] * c))


def gram(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, "k k"]:
    features = jnp.tanh(x[:, None] * c)
    return features.T @ features


def gradient(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, "k"]:
    return jax.grad(lambda c: jnp.mean(jnp.exp(-((x[:, None] * c) ** 2))))(c)


def scores(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, "n"]:
    return jnp.max(jnp.cumsum(jnp.cos(x[:, None] * c), axis=1), axis=1)


def distances(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, "k"]:
    return jnp.min(jnp.sort(jnp.abs(x[:, None] - c), axis=1), axis=0)


BODIES = [variance, gram, gradient, scores, distances]


@pytest.mark.core("variance-500000", "gradient-1MiB")
@pytest.mark.parametrize("budget", [500_000, 700_000, "1MiB", 3_000_000, "1GiB"], ids=str)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_compiled_program_stays_under_it(body, budget):
    """As the compiler counts temporaries and arguments, of which there are 240,000 bytes; and the
    numbers are those of the whole.
    """
    x, c = rows(N), rows(32)
    f = optimize(body, chunk={"n": "auto"}, memory=budget)
    found = f.lower(x, c).compile().memory_analysis()
    limit = f.plan(x, c).plan.stage("chunk").budget
    assert found.temp_size_in_bytes + found.argument_size_in_bytes <= limit
    np.testing.assert_allclose(f(x, c), jax.jit(body)(x, c), rtol=1e-3, atol=1e-5)


def lines(program, *args, **kwargs):
    return {d["name"]: d["why"] for d in program.plan(*args, **kwargs).to_dict()["decisions"]}


@pytest.mark.rest
def test_the_plan_shows_the_estimate_beside_what_the_compiler_says():
    """And the budget."""
    found = lines(optimize(variance, chunk={"n": "auto"}, memory="1MiB"), rows(N), rows(32))
    assert found["chunk"] == "n=60000 in chunks so that the program takes 1 MiB"
    counted, _, guess = found["memory"].partition("; ")
    assert counted.endswith(" by the compiler, of 1 MiB")
    assert guess.startswith("extrapolated from two widths: ")


def test_an_estimate_above_the_budget_does_not_stand_before_what_was_counted():
    """Where the line was wrong, what counts is first."""
    assert (
        str(Fit(5, 2**22, 2**20, 2**21))
        == "1 MiB by the compiler, of 2 MiB; extrapolated from two widths: 4 MiB"
    )
    assert (
        str(Fit(5, 2**20, 2**20, 2**21))
        == str(Fit(5, None, 2**20, 2**21))
        == "1 MiB by the compiler, of 2 MiB"
    )


def test_what_fits_is_not_cut():
    """One program, all at once."""
    f = optimize(variance, chunk={"n": "auto"}, memory="1GiB")
    assert lines(f, rows(N), rows(32))["passes"] == "not cut: all of it fits"
    assert "while" not in f.lower(rows(N), rows(32)).as_text()


@pytest.mark.rest
def test_memory_alone_takes_the_longest_axis_that_can_be_cut():
    """Of two, the longer one is sorted."""

    def f(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sort(jnp.sin(x * c[:, None]), axis=1)[:, :5])

    x, c = rows(3000), rows(800)
    program = optimize(f, memory="1MiB")
    assert lines(program, x, c)["passes"].endswith(" of k at a time")
    np.testing.assert_allclose(program(x, c), jax.jit(f)(x, c), rtol=1e-3)


@pytest.mark.core("800-3000-k")
@pytest.mark.parametrize(("n", "k", "longest"), [(3000, 800, "n"), (800, 3000, "k")])
def test_of_two_axes_that_can_be_cut_memory_takes_the_longer_one(n, k, longest):
    """Whichever comes first in the signature."""

    def f(x: Float[Array, "n"], c: Float[Array, "k"]) -> Float[Array, ""]:
        waves = jnp.sin(x[:, None] * c[:, None, None] * jnp.arange(1, 5, dtype=jnp.float32))
        return jnp.sum(jnp.sort(waves, axis=-1)[..., 0])  # no version of XLA fuses what is sorted

    program = optimize(f, memory="1MiB")
    assert lines(program, rows(n), rows(k))["passes"].endswith(f" of {longest} at a time")


def test_auto_is_what_is_free():
    """Of the host's memory a half."""
    f = optimize(variance, memory="auto")
    x, c = rows(N), rows(32)
    np.testing.assert_allclose(f(x, c), jax.jit(variance)(x, c), rtol=1e-3)
    assert f.plan(x, c).plan.stage("chunk").budget > 2**20


def test_arguments_on_the_device_count_for_auto_too():
    """They are 240,000 bytes. The number in the error is enough, and its plan is that of arrays
    from NumPy.
    """
    x, c = rows(N), rows(32)
    held = jnp.asarray(x)
    try:
        jitney.configure(memory=200_000)  # what is free, for `auto`
        with pytest.raises(AxisError, match="the arguments are there as a whole") as refused:
            optimize(variance, memory="auto")(held, c)
    finally:
        jitney.configure(memory="auto")
    least = int(re.search(r"memory=(\d+)", str(refused.value))[1])
    f = optimize(variance, memory=least)
    np.testing.assert_allclose([f(held, c), f(x, c)], jax.jit(variance)(x, c), rtol=1e-3)
    assert f.stats.traces == 1


@pytest.mark.rest
def test_too_little_is_an_error_that_says_how_much_would_do():
    """And that is so."""
    x, c = rows(N), rows(32)
    with pytest.raises(
        AxisError, match=r"no chunk along 'n' brings the program to 97.66 KiB: the least is"
    ) as error:
        optimize(variance, chunk={"n": "auto"}, memory=100_000)(x, c)
    enough = int(str(error.value).partition("memory=")[2].partition(",")[0])
    np.testing.assert_allclose(
        optimize(variance, chunk={"n": "auto"}, memory=enough)(x, c),
        jax.jit(variance)(x, c),
        rtol=1e-3,
    )


def test_what_cannot_be_cut_is_an_error_if_it_does_not_fit():
    """Only then."""

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.fft.fft(jnp.sin(x)).real

    x = rows(N)
    np.testing.assert_allclose(optimize(f, memory="1GiB")(x), jax.jit(f)(x))
    with pytest.raises(AxisError, match="transforms along it"):
        optimize(f, memory="200KiB")(x)


def test_without_names_there_is_nothing_to_cut():
    """The plan says so, and what does not fit is an error."""
    plain = optimize(lambda x: x + 1, memory="1GiB")
    assert (
        lines(plain, rows(3))["chunk"] == "no named axis to cut: all of it takes no more than 1 GiB"
    )
    np.testing.assert_array_equal(plain(jnp.ones(3)), np.full(3, 2.0))
    with pytest.raises(
        AxisError, match=r"more than its memory of 100 B, and has no named axis to cut"
    ):
        optimize(lambda x: x + 1, memory=100)(rows(N))


def test_the_contract_is_checked_first():
    """Before anything is compiled."""
    with pytest.raises(ContractError):
        optimize(variance, memory="1MiB")(rows(3, 4), rows(2))


@given(
    size=st.integers(1, 10**9),
    fixed=st.integers(0, 10**6),
    each=st.integers(0, 1000),
    jump=st.integers(1, 10**6),
    budget=st.integers(1, 10**9),
)
@examples(
    {"size": 1, "fixed": 0, "each": 0, "jump": 1, "budget": 1000},  # one element, that just fits
    {"size": 1, "fixed": 0, "each": 0, "jump": 1, "budget": 999},  # and just not
    {"size": 10**9, "fixed": 10**6, "each": 1, "jump": 10, "budget": 10**6},  # what is fixed is all
    # only jumps, and all of it fits
    {"size": 10**9, "fixed": 0, "each": 0, "jump": 10**6, "budget": 10**9},
    {"size": 10**9, "fixed": 0, "each": 0, "jump": 10**6, "budget": 999},  # up to the first jump
    {"size": 10**9, "fixed": 5000, "each": 16, "jump": 10**6, "budget": 2**20},  # a line
    # to the element in front of a jump or behind it
    {"size": 1000, "fixed": 0, "each": 1, "jump": 500, "budget": 1500},
    {"size": 10**9, "fixed": 10**6, "each": 1000, "jump": 1, "budget": 10**9},
    {"size": 2, "fixed": 0, "each": 1000, "jump": 2, "budget": 2000},
    {"size": 10**6, "fixed": 17, "each": 3, "jump": 7, "budget": 1234567},
)
def test_whatever_the_compiler_says_the_width_fits(size, fixed, each, jump, budget):
    """A width is found wherever one element fits, though memory grows by jumps."""

    def measure(width):
        return fixed + each * width + 1000 * (width // jump)

    if measure(1) > budget:
        assert isinstance(fit(measure, size, budget), Misfit)
        return
    found = fit(measure, size, budget)
    assert 1 <= found.width <= size
    assert measure(found.width) == found.measured <= budget


@given(taken=st.lists(st.integers(1, 100), min_size=1, max_size=200), budget=st.integers(1, 100))
@examples(
    {"taken": [7], "budget": 6},
    {"taken": [9, 3, 8, 9], "budget": 3},  # two take less than one
    {"taken": [9, 8, 3, 9, 9, 9, 9, 9], "budget": 2},
    {"taken": [5] * 40 + [2] + [9] * 60, "budget": 1},
    {"taken": [3, 9] * 50, "budget": 2},
)
def test_the_bytes_that_an_error_names_are_enough(taken, budget):
    """Whatever each width takes: a wider chunk may take less."""

    def measure(width):
        return taken[width - 1]

    first = fit(measure, len(taken), budget)
    enough = first.least if isinstance(first, Misfit) else budget
    found = fit(measure, len(taken), enough)
    assert isinstance(found, Fit)
    assert measure(found.width) == found.measured <= enough


def test_a_line_takes_most_of_what_there_is():
    """Three programs are measured where memory is a line."""
    seen = []

    def measure(width):
        seen.append(width)
        return 5000 + 16 * width

    found = fit(measure, 10**7, 2**20)
    assert len(seen) == 3
    assert found == Fit(found.width, measure(found.width), measure(found.width), 2**20)
    assert found.measured > 0.98 * 2**20


def test_a_flat_line_takes_all_that_is_asked_for():
    """Where the values of a chunk never lie in memory, its length does not matter."""
    assert fit(lambda width: 500, 10**7, 2**20).width == 10**7


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**31, "2 GiB"), (5 * 2**40, "5120 GiB")],
)
def test_bytes_are_read_easily(count, said):
    """In powers of 1024."""
    assert text(count) == said


def layered(w: Float[Array, "layer k k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """A loop whose turns keep several intermediate values each for the backward pass."""

    def layer(x, w):
        h = x @ w
        return x + jnp.sin(h) * jnp.exp(-(h**2)) + jnp.tanh(h) ** 2, None

    return jnp.mean(jax.lax.scan(layer, x, w)[0] ** 2)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["grad", "value_and_grad"])
def test_loops_are_recomputed_where_that_fits_memory(kind):
    """As the compiler counts it, and the plan says so; the numbers are the same. `remat` said
    outright comes first.
    """
    rng = np.random.default_rng(0)
    w = jnp.asarray(rng.normal(size=(8, 16, 16)) / 4, jnp.float32)
    x = jnp.asarray(rng.normal(size=(512, 16)), jnp.float32)
    whole = jax.jit(jax.grad(layered)).lower(w, x).compile().memory_analysis().temp_size_in_bytes
    f = lazy_derivatives(wrt="w")(optimize(layered, memory=whole // 2))
    got, want = getattr(f, kind)(w, x), getattr(jax, kind)(layered)(w, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), got, want)
    assert (
        getattr(f, kind).program().lower(w, x).compile().memory_analysis().temp_size_in_bytes
        <= whole // 2
    )
    line = next(
        d["why"]
        for d in getattr(f, kind).plan(w, x).to_dict()["decisions"]
        if d["name"] == "derivative"
    )
    assert "remat of the bodies of loops" in line


@pytest.mark.rest
def test_an_axis_is_cut_where_recomputing_is_not_enough():
    """Both, one after the other, while one size is traced after the other."""

    first, second = jnp.asarray(rows(8, 64)), jnp.asarray(rows(64, 64))

    def loss(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
        h = jnp.tanh(x * w) @ first
        return jnp.mean(jnp.sin(h) @ second * jnp.cos(h))

    w, x = jnp.ones(8), jnp.asarray(np.random.default_rng(1).normal(size=(8192, 8)), jnp.float32)
    whole = jax.jit(jax.grad(loss)).lower(w, x).compile().memory_analysis()
    budget = whole.argument_size_in_bytes + whole.temp_size_in_bytes // 3
    f = lazy_derivatives(wrt="w")(optimize(loss, memory=budget))
    np.testing.assert_allclose(f.grad(w, x), jax.grad(loss)(w, x), rtol=1e-3, atol=1e-5)
    lines = {d["name"]: d["why"] for d in f.grad.plan(w, x).to_dict()["decisions"]}
    assert "which recomputing loops does not bring down" in lines["derivative"]
    found = f.grad.program().lower(w, x).compile().memory_analysis()
    assert found.argument_size_in_bytes + found.temp_size_in_bytes <= budget
