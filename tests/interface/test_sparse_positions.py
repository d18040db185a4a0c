"""Sparse derivatives of functions that read at positions among their arguments. Reference: JAX's
dense derivative of the plain function.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jitney
from jitney import lazy_derivatives, optimize
from tests._arrays import array

N = 12
RNG = np.random.default_rng(0)
NB = RNG.integers(0, N, (N, 2)).astype(np.int32)
U = RNG.normal(size=N).astype(np.float32)


def graph(u: Float[Array, "n"], nb: Int[Array, "n k"]) -> Float[Array, "n"]:
    return u**2 - jnp.mean(u[nb], axis=1)


def sparse(fn, **options):
    return lazy_derivatives(optimize(fn, **options), wrt="u", sparse=True)


def structure(nb):
    """Which elements may be nonzero."""
    where = np.eye(N, dtype=bool)
    where[np.arange(N)[:, None], nb] = True
    return where


@pytest.mark.core("jax")
@pytest.mark.parametrize("of", [np.asarray, jnp.asarray, np.int64], ids=["numpy", "jax", "int64"])
def test_a_call_that_has_the_positions_is_coloured_by_them(of):
    """As many elements are stored as may be nonzero."""
    got = sparse(graph).jacobian(U, of(NB))
    np.testing.assert_allclose(got.todense(), jax.jacobian(graph)(U, NB), rtol=1e-5)
    assert got.nse == structure(NB).sum()


def test_other_positions_are_another_structure():
    """Of the same shape, and what was changed in place."""
    f, nb = sparse(graph), NB.copy()
    for _ in range(3):
        got = f.jacobian(U, nb)
        np.testing.assert_allclose(got.todense(), jax.jacobian(graph)(U, nb), rtol=1e-5)
        assert got.nse == structure(nb).sum()
        nb[:] = RNG.integers(0, N, nb.shape)


def test_the_plan_is_that_of_the_call():
    """It tells how many passes there are; arguments by keyword too."""
    lines = {
        d["name"]: d["why"] for d in sparse(graph).jacobian.plan(u=U, nb=NB).to_dict()["decisions"]
    }
    assert lines["derivative"].startswith("coloured: ")
    assert f"{structure(NB).sum()} of {N * N} elements are not zero" in lines["derivative"]


def test_ahead_of_time():
    """Nothing is compiled in the call then."""
    f = sparse(graph)
    f.jacobian.compile(U, NB)
    programs = f.jacobian.stats.compiles
    f.jacobian(U, NB)
    assert f.jacobian.stats.compiles == programs


@pytest.mark.core("jit")
@pytest.mark.parametrize(
    "outer", [jax.jit, lambda f: jax.vmap(f, in_axes=(None, 0))], ids=["jit", "vmap"]
)
def test_where_positions_are_traced_it_is_an_error(outer):
    """With the argument, the line and the cure, which is followed."""
    f = sparse(graph)
    nb = NB if outer is jax.jit else NB[None]
    with pytest.raises(
        jitney.errors.DerivativeError,
        match=r"hangs on 'nb', at test_sparse_positions.py:\d+ \(graph\)",
    ) as error:
        outer(lambda u, nb: f.jacobian(u, nb).todense())(U, nb)
    assert "all 144 elements of the sparse derivative may be nonzero" in str(error.value)
    assert "@optimize(static='nb')" in str(error.value)
    cured = sparse(graph, static="nb")
    got = jax.jit(lambda u: cured.jacobian(u, NB).todense())(U)
    np.testing.assert_allclose(got, jax.jacobian(graph)(U, NB), rtol=1e-5)


def test_a_call_under_jit_that_has_the_positions_is_coloured():
    """Closed over, they are there."""
    f = sparse(graph)
    got = jax.jit(lambda u: f.jacobian(u, NB))(U)
    np.testing.assert_allclose(got.todense(), jax.jacobian(graph)(U, NB), rtol=1e-5)
    assert got.nse == structure(NB).sum()


def scattered(u: Float[Array, "n"], nb: Int[Array, "n"], w: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.ops.segment_sum(jnp.sin(u) * w, nb, num_segments=N)


def window(u: Float[Array, "n"], at: Int[Array, ""]) -> Float[Array, "4"]:
    return jax.lax.dynamic_slice_in_dim(u, at, 4) ** 2


def looped(u: Float[Array, "n"], nb: Int[Array, "n"]) -> Float[Array, "n"]:
    return jax.lax.scan(lambda c, x: (c, x[0] * u[x[1]]), 0.0, (u, nb))[1]


def derived(u: Float[Array, "n"], nb: Int[Array, "n"]) -> Float[Array, "n"]:
    order = jnp.argsort(nb)
    return jnp.sin(u[order]) + u


@pytest.mark.core("scatter")
@pytest.mark.parametrize(
    ("fn", "rest", "stored"),
    [
        (scattered, (NB[:, 0], U), N),
        (window, (array(3, np.int32),), 4),
        pytest.param(
            derived,
            (NB[:, 0],),
            2 * N - int((np.argsort(NB[:, 0]) == np.arange(N)).sum()),
            marks=pytest.mark.rest,
        ),
        # of rows of a loop no positions are known
        pytest.param(looped, (NB[:, 0],), N * N, marks=pytest.mark.rest),
    ],
    ids=["scatter", "slice", "sorted", "loop"],
)
def test_all_that_reads_or_writes_at_positions(fn, rest, stored):
    """In loops too, and where positions are computed of an argument."""
    got = sparse(fn).jacobian(U, *rest)
    np.testing.assert_allclose(got.todense(), jax.jacobian(fn)(U, *rest), rtol=1e-5, atol=1e-6)
    assert got.nse == stored


def test_positions_that_hang_on_floats_are_an_error():
    """No program for each value of them is made behind the user's back."""

    def nearest(u: Float[Array, "n"], v: Float[Array, "n"]) -> Float[Array, "n"]:
        return u[jnp.argsort(v)]

    with pytest.raises(jitney.errors.DerivativeError, match="hangs on 'v'"):
        sparse(nearest).jacobian(U, U)
    got = sparse(nearest, static="v").jacobian(U, U)
    np.testing.assert_allclose(got.todense(), jax.jacobian(nearest)(U, U))


def test_positions_in_a_module_are_passed_by_themselves():
    """What else it holds varies from call to call."""

    class Net(eqx.Module):
        nb: Int[Array, "n k"]
        w: Float[Array, "n"]

    def flow(u: Float[Array, "n"], net: Net) -> Float[Array, "n"]:
        return net.w * graph(u, net.nb)

    with pytest.raises(
        jitney.errors.DerivativeError,
        match=r"hangs on 'net.nb'(?s:.)*Fix: pass the positions as an argument of their own",
    ):
        sparse(flow).jacobian(U, Net(jnp.asarray(NB), jnp.ones(N)))

    def apart(u: Float[Array, "n"], net: Net, nb: Int[Array, "n k"]) -> Float[Array, "n"]:
        return net.w * graph(u, nb)

    got = sparse(apart).jacobian(U, Net(jnp.asarray(NB), jnp.ones(N)), NB)
    assert got.nse == structure(NB).sum()


@pytest.mark.rest
def test_positions_in_a_tree_of_integers_are_known():
    """A dict of edges."""

    def product(u: Float[Array, "n"], edges: dict[str, Int[Array, "n"]]) -> Float[Array, "n"]:
        return u[edges["a"]] * u[edges["b"]]

    edges = {"a": np.arange(N)[::-1].astype(np.int32), "b": np.arange(N, dtype=np.int32)}
    got = sparse(product).jacobian(U, edges)
    np.testing.assert_allclose(got.todense(), jax.jacobian(product)(U, edges), rtol=1e-5)
    assert got.nse == 2 * N


@pytest.mark.rest
def test_positions_that_hang_on_what_varies_are_any():
    """What varies has no values while a derivative is made: all are stored that may be nonzero, as
    before.
    """

    def ordered(u: Float[Array, "n"]) -> Float[Array, "n"]:
        return u[jnp.argmax(u)] * u

    got = sparse(ordered).jacobian(U)
    np.testing.assert_allclose(got.todense(), jax.jacobian(ordered)(U), rtol=1e-5, atol=1e-6)


def test_integers_that_are_no_positions_stay_traced():
    """A counter that changes in each call makes no program in each."""

    def counted(
        u: Float[Array, "n"], nb: Int[Array, "n k"], step: Int[Array, ""]
    ) -> Float[Array, "n"]:
        return graph(u, nb) * step.astype(u.dtype)

    f = sparse(counted)
    for step in range(4):
        got = f.jacobian(U, NB, jnp.int32(step))
        np.testing.assert_allclose(got.todense(), step * jax.jacobian(graph)(U, NB), rtol=1e-5)
    assert f.jacobian.stats.compiles == 1


@pytest.mark.rest
def test_a_hessian_is_coloured_by_them_too():
    """Of sums over edges."""

    def energy(u: Float[Array, "n"], nb: Int[Array, "n k"]) -> Float[Array, ""]:
        return jnp.sum((u[:, None] - u[nb]) ** 4)

    got = sparse(energy).hessian(U, NB)
    np.testing.assert_allclose(got.todense(), jax.hessian(energy)(U, NB), rtol=1e-4, atol=1e-4)
    assert got.nse <= (structure(NB) | structure(NB).T).sum()


def test_a_method_takes_them_by_what_it_is_bound_to():
    """The object is no position."""

    class Net:
        @lazy_derivatives(wrt="u", sparse=True)
        @optimize
        def flow(self, u: Float[Array, "n"], nb: Int[Array, "n k"]) -> Float[Array, "n"]:
            return graph(u, nb)

    got = Net().flow.jacobian(U, NB)
    np.testing.assert_allclose(got.todense(), jax.jacobian(graph)(U, NB), rtol=1e-5)
    assert got.nse == structure(NB).sum()


@pytest.mark.filterwarnings("ignore:.*makes a sparse Jacobian")  # under pad, which has none
@pytest.mark.parametrize("options", [{"vmap": "b"}, {"pad": {"n": [16]}}], ids=["vmap", "pad"])
def test_mapped_positions_are_an_error(options):
    """Each element has its own structure; no whole array of them stands for one."""
    many = (np.stack([U, U]), np.stack([NB, NB])) if "vmap" in options else (U, NB)
    with pytest.raises(jitney.JitneyError):
        sparse(graph, **options).jacobian(*many)


@pytest.mark.rest
def test_a_plan_says_that_all_is_stored():
    """Where no structure was found."""

    def dense(u: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sum(u) * jnp.sin(u)

    lines = {
        d["name"]: d["why"]
        for d in sparse(dense).jacobian.plan(np.ones(2500, np.float32)).to_dict()["decisions"]
    }
    assert "no structure was found: all 6250000 elements are stored" in lines["derivative"]


def test_a_dense_derivative_takes_traced_positions():
    """It stores all anyway."""
    f = lazy_derivatives(optimize(graph), wrt="u")
    np.testing.assert_allclose(jax.jit(f.jacobian)(U, NB), jax.jacobian(graph)(U, NB), rtol=1e-5)


def test_a_dense_plan_says_what_hides_the_structure():
    """The line whose positions are traced."""
    lines = {
        d["name"]: d["why"]
        for d in lazy_derivatives(graph, wrt="u").jacobian.plan(U, NB).to_dict()["decisions"]
    }
    assert "positions at test_sparse_positions.py:" in lines["derivative"]
    assert "are traced: static, they would show what is zero" in lines["derivative"]


def test_positions_that_change_in_each_call_are_told_what_helps():
    """They are static by no word of the user's; without `sparse` one program serves all."""
    f = sparse(graph)
    with pytest.warns(
        jitney.JitneyWarning, match="keep 'nb' for many calls, or leave out `sparse`"
    ):
        [f.jacobian(U, np.roll(NB, k, axis=0)) for k in range(9)]
    remedies = [cause.remedy for each in f.jacobian.stats.causes for cause in each]
    assert "leave out `sparse`" in remedies[-1]
    dense = lazy_derivatives(optimize(graph), wrt="u")
    for k in range(3):
        np.testing.assert_allclose(
            dense.jacobian(U, np.roll(NB, k, axis=0)),
            jax.jacobian(graph)(U, np.roll(NB, k, axis=0)),
            rtol=1e-5,
        )
    assert dense.jacobian.stats.compiles == 1
