"""How calls run where an option asks for more than a compiled program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize
from jitney.errors import NonFiniteError
from tests._arrays import array
from tests._monitor import listening
from tests._tracing import count_traces

X = array(np.linspace(0, 1, 4, dtype=np.float32))


def bad(x):
    y = x + 1
    return jnp.log(y - 2)


def finite(x):
    return jnp.log(x + 1)


def test_debug_nans_names_operation_and_line():
    """The option of the decorator."""
    with pytest.raises(
        NonFiniteError,
        match=(
            r"bad\(\) at test_wrappers\.py:\d+: `log` made the first NaN at test_wrappers\.py:\d+"
            r" \(bad\)"
        ),
    ):
        optimize(debug_nans=True)(bad)(X)


def test_debug_nans_by_the_environment(monkeypatch):
    """Read at decoration; the option comes first."""
    monkeypatch.setenv("JITNEY_DEBUG_NANS", "1")
    with pytest.raises(NonFiniteError, match="`log`"):
        optimize(bad)(X)
    assert np.isnan(optimize(debug_nans=False)(bad)(X)[0])
    monkeypatch.setenv("JITNEY_DEBUG_NANS", "0")
    assert np.isnan(optimize(bad)(X)[0])


def test_debug_nans_lets_finite_results_pass():
    """And what is not a float; one trace, as without it."""
    body = count_traces(lambda x: (finite(x), x > 0, "text"))
    f = optimize(debug_nans=True)(body)
    for _ in range(3):
        np.testing.assert_allclose(f(X)[0], np.log1p(X), rtol=1e-6)
    assert body.traces == 1


def test_debug_nans_finds_every_bad_call():
    """A good call, a bad one, a good one: the same program."""
    f = optimize(debug_nans=True)(lambda x: jnp.log(x))
    f(X + 1)
    for _ in range(2):
        with pytest.raises(NonFiniteError):
            f(-X)
    f(X + 1)
    assert f.stats.traces == 1


def test_debug_nans_acts_with_the_other_stages():
    """Mapped and in double precision."""

    @optimize(debug_nans=True, vmap="batch", precision="f64", remat=True)
    def f(x: Float[Array, "n"]):
        return jnp.log(x)

    np.testing.assert_allclose(f(jnp.ones((2, 3))), np.zeros((2, 3)))
    with pytest.raises(NonFiniteError, match="`log`"):
        f(-jnp.ones((2, 3)))


def test_debug_nans_skips_inside_another_trace():
    """There are no numbers yet, as a warning says; the outermost program looks at its own
    results.
    """
    # of its own: a warning comes once for each function
    inner = optimize(debug_nans=True)(lambda x: bad(x))
    with pytest.warns(JitneyWarning, match="`debug_nans` looks at nothing"):
        assert np.isnan(jax.jit(inner)(X)[0])
    with pytest.raises(NonFiniteError, match="`log`"):
        optimize(debug_nans=True)(lambda x: inner(x) + 1)(X)


def test_run_time_checks_of_equinox_raise_as_its_users_know_them():
    """`eqx.error_if`, on the first and on later calls, and not where it does not apply."""

    @optimize
    def positive(x, y):
        return eqx.error_if(x, jnp.any(x < 0), "must not be negative") + y

    np.testing.assert_array_equal(positive(X, X), 2 * np.asarray(X))
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
            positive(-X, X)
    np.testing.assert_array_equal(positive(X, X), 2 * np.asarray(X))


def test_run_time_checks_under_an_outer_jit():
    """The outer jit is the one that runs."""

    @optimize
    def positive(x):
        return eqx.error_if(x, jnp.any(x < 0), "must not be negative")

    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        eqx.filter_jit(lambda x: positive(x) + 1)(-X)


def test_run_time_checks_after_compile():
    """Compiled ahead, and still the errors of Equinox."""

    @optimize
    def positive(x):
        return eqx.error_if(x, jnp.any(x < 0), "must not be negative")

    positive.compile(X)
    traces = positive.stats.traces
    np.testing.assert_array_equal(positive(X), X)
    assert positive.stats.traces == traces
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        positive(-X)


def test_cache_false_uses_no_persistent_cache():
    """JAX reports neither a hit nor a miss of the cache for it; what is compiled around it uses the
    cache as before.
    """
    f = optimize(cache=False)(lambda x: jnp.cosh(x) * 3)
    one, two, three = X, X[1:], X[2:]
    with listening() as events:
        for _ in range(2):
            f(one)
            f(two)
        f.compile(three)
    assert f.stats.compiles == 3
    assert f.stats.persistent_hits == 0
    assert [events.count(what) for what in ("persistent hit", "persistent miss")] == [0, 0]


def test_cache_true_asks_the_persistent_cache():
    """A hit or a miss for each program."""
    optimize(lambda x: x)(X)
    if not jax.config.jax_compilation_cache_dir:
        pytest.skip("no persistent cache here")
    f = optimize(lambda x: jnp.cosh(x) * 4)
    with listening() as events:
        f(X)
    assert events.count("persistent hit") + events.count("persistent miss") == 1


def test_f64_leaves_no_trace_behind_an_error():
    """The scope closes whatever happens in it."""

    @optimize(precision="f64")
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        f(X)
    assert not jax.config.jax_enable_x64


def test_a_plain_program_waits_for_nothing_that_others_asked_for():
    """Equal functions under other options are programs of their own."""
    body = lambda x: jnp.log(x - 2)
    with pytest.raises(NonFiniteError):
        optimize(debug_nans=True)(body)(X)
    assert np.isnan(optimize(body)(X)[0])


def test_debug_nans_lets_meant_infinities_pass():
    """Bounds that are infinite come in as arguments and go out again."""
    f = optimize(debug_nans=True)(lambda lower, x: (lower + 1, x))
    assert f(jnp.array([-jnp.inf, 0.0]), X)[0][0] == -jnp.inf


def test_debug_nans_names_the_argument_that_has_a_nan_already():
    """By its path."""
    with pytest.raises(NonFiniteError, match=r"argument tree\['b'\] already has a NaN"):
        optimize(debug_nans=True)(lambda x, tree: x * tree["b"])(
            X, {"a": X, "b": X.at[1].set(jnp.nan)}
        )


def test_debug_nans_holds_for_bodies_that_run_un_jitted():
    """The operation is not known then, and the message says so."""
    f = optimize(debug_nans=True, on_trace_error="eager")(lambda x: jnp.log(-x) if x[1] > 0 else x)
    with (
        pytest.warns(UserWarning, match="un-jitted"),
        pytest.raises(NonFiniteError, match="known of traced bodies only"),
    ):
        f(X)
    np.testing.assert_array_equal(f(-X), -np.asarray(X))


def nested_first(**options):
    """A program whose first call came from inside another trace, by a body that checks its
    argument.
    """
    f = optimize(**options)(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative") + 1)
    eqx.filter_jit(lambda x: f(x))(X)
    return f


def test_a_first_call_from_inside_another_trace_decides_nothing_for_later_ones():
    """Checks of Equinox, the cache and the plan of a call by itself are as if the nested call had
    not been; both share one trace.
    """
    f = nested_first()
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(-X)
    assert f.stats.traces == 1
    assert "outer trace" not in str(f.plan(X))


def test_cache_false_holds_after_a_nested_first_call():
    """The program compiled by itself is not kept."""
    f = nested_first(cache=False)
    with listening() as events:
        f(X)
    assert [events.count(what) for what in ("persistent hit", "persistent miss")] == [0, 0]


def test_debug_nans_holds_after_a_nested_first_call():
    """The nested program is another one."""
    f = optimize(debug_nans=True)(lambda x: bad(x))
    with pytest.warns(JitneyWarning, match="`debug_nans` looks at nothing"):
        jax.jit(f)(X)
    with pytest.raises(NonFiniteError):
        f(X)


@pytest.mark.core("{}")
@pytest.mark.parametrize(
    "options",
    [{}, {"cache": False}, {"compiler": "fast"}, {"debug_nans": True}, {"pad": {"n": [4, 8]}}],
    ids=str,
)
def test_checks_that_only_later_shapes_bring(options):
    """The first call holds none, so nothing waits; the first call of the shape that has one raises
    Equinox's error already.
    """

    def body(x: Float[Array, "n"]):
        return (
            eqx.error_if(x, jnp.any(x < 0), "must not be negative") if x.shape[0] > 4 else x
        ) + 1

    counted = count_traces(body)
    f = optimize(counted, **options)
    f(X)
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
            f(-jnp.ones(7))
    np.testing.assert_array_equal(f(jnp.ones(7)), np.full(7, 2.0))
    np.testing.assert_array_equal(f(X), np.asarray(X) + 1)
    if "pad" not in options:  # which traces for its proof too
        assert counted.traces == 2


def test_of_a_later_shape_the_first_result_is_awaited(monkeypatch):
    """A GPU raises the error of a check only then: `note_missed_check` would see none. Every other
    call returns before the device is done.
    """
    f = optimize(lambda x: x + 1)
    awaited = []
    monkeypatch.setattr(jax, "block_until_ready", awaited.append)
    for n in (3, 3, 4, 4, 4, 3, 5, 5):
        f(np.ones(n, np.float32))
    assert [out.shape for out in awaited] == [(4,), (5,)]


def test_another_shape_without_checks_stays_a_plain_program():
    """Deciding anew for each trace takes nothing: one trace and one compile a shape, and JAX's own
    function runs.
    """
    counted = count_traces(lambda x: x * 2)
    f = optimize(counted)
    for n in (2, 3, 2, 3, 3):
        f(jnp.ones(n))
    assert (counted.traces, f.stats.traces, f.stats.hits) == (2, 2, 3)


@pytest.mark.core("{}")
@pytest.mark.parametrize("given", [{}, {"donate": "x"}], ids=str)
def test_run_time_checks_with_compiler_options(given):
    """Which JAX allows at the top level only: one trace there, and the same errors and numbers
    there and below another jit.
    """
    body = count_traces(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative") + 1)
    f = optimize(body, compiler="fast", **given)
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
            f(-X)
    np.testing.assert_array_equal(f(jnp.ones(4)), np.full(4, 2.0))
    assert body.traces == f.stats.traces == 1
    np.testing.assert_array_equal(
        eqx.filter_jit(lambda: f(np.ones(4, np.float32)))(), np.full(4, 2.0)
    )
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        eqx.filter_jit(lambda: f(-np.ones(4, np.float32)))()


def test_the_warning_of_what_runs_un_jitted_names_the_options_that_then_do_nothing():
    """There is no program to pad, cut or place."""

    @optimize(on_trace_error="eager", pad={"n": "pow2"}, donate="x")
    def upright(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x if jnp.sum(x) > 0 else -x

    with pytest.warns(JitneyWarning, match="no program for `pad` and `donate` to act on"):
        upright(-jnp.ones(3))


def test_debug_nans_names_the_lane_of_a_mapped_axis():
    """Of `vmap=` by the name of the axis; of a `jax.vmap` in the body the element of the operation
    tells it.
    """
    rows = np.array([[1, 1], [2, 2], [-1, -1], [1, 1], [-2, -1]], np.float32)

    def score(x: Float[Array, "n"]):
        return jnp.log(x.sum())

    with pytest.raises(NonFiniteError, match="; 2 of 5 lanes have one, the first is batch = 2\n"):
        optimize(vmap="batch", debug_nans=True)(score)(rows)
    with pytest.raises(NonFiniteError, match=r"\(score\), element \[2\], from "):
        optimize(debug_nans=True)(jax.vmap(score))(rows)
