"""`f.grad`, `f.jacobian` and their kin, and `@lazy_derivatives`: JAX's own derivatives of the plain
function.
"""

import functools
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from jitney import lazy_derivatives, optimize, stream
from jitney.analysis import axes, strategy
from jitney.errors import DerivativeError, OptionError, TraceError
from tests._arrays import array, weak
from tests._tracing import count_traces


def rows(*shape):
    return array(np.random.default_rng(list(shape)).normal(size=shape))


X, Z = rows(4), rows(3)
DX, DZ = array(np.asarray(X) * 2), array(np.asarray(Z) + 1)  # directions


def vector(x: Float[Array, "n"], z: Float[Array, "k"]) -> Float[Array, "n"]:
    return jnp.sin(x) * jnp.sum(z**2)


def scalar(x: Float[Array, "n"], z: Float[Array, "k"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sin(x) ** 2) * jnp.sum(z**3)


def close(got, want, rtol=1e-5):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5), got, want)


BOTH = (0, 1)
NAMED = {
    "grad": (scalar, {}, lambda: dict(zip("xz", jax.grad(scalar, BOTH)(X, Z), strict=True))),
    "value_and_grad": (
        scalar,
        {},
        lambda: (scalar(X, Z), dict(zip("xz", jax.grad(scalar, BOTH)(X, Z), strict=True))),
    ),
    "jacobian": (vector, {}, lambda: dict(zip("xz", jax.jacfwd(vector, BOTH)(X, Z), strict=True))),
    "value_and_jacobian": (
        vector,
        {},
        lambda: (vector(X, Z), dict(zip("xz", jax.jacfwd(vector, BOTH)(X, Z), strict=True))),
    ),
    "hessian": (
        scalar,
        {},
        lambda: {
            a: dict(zip("xz", row, strict=True))
            for a, row in zip("xz", jax.hessian(scalar, BOTH)(X, Z), strict=True)
        },
    ),
    "hessian_diag": (
        scalar,
        {},
        lambda: {
            "x": jnp.diag(jax.hessian(scalar)(X, Z)),
            "z": jnp.diag(jax.hessian(scalar, 1)(X, Z)),
        },
    ),
    "jvp": (vector, {"tangents": {"x": DX, "z": DZ}}, lambda: jax.jvp(vector, (X, Z), (DX, DZ))),
    "vjp": (
        vector,
        {"cotangent": DX},
        lambda: (vector(X, Z), dict(zip("xz", jax.vjp(vector, X, Z)[1](DX), strict=True))),
    ),
    "hvp": (
        scalar,
        {"tangents": {"x": DX, "z": DZ}},
        lambda: dict(zip("xz", jax.jvp(jax.grad(scalar, BOTH), (X, Z), (DX, DZ))[1], strict=True)),
    ),
}
SINGLE = {
    "grad": (scalar, {}, lambda: jax.grad(scalar)(X, Z)),
    "value_and_grad": (scalar, {}, lambda: jax.value_and_grad(scalar)(X, Z)),
    "jacobian": (vector, {}, lambda: jax.jacfwd(vector)(X, Z)),
    "value_and_jacobian": (vector, {}, lambda: (vector(X, Z), jax.jacfwd(vector)(X, Z))),
    "hessian": (scalar, {}, lambda: jax.hessian(scalar)(X, Z)),
    "hessian_diag": (scalar, {}, lambda: jnp.diag(jax.hessian(scalar)(X, Z))),
    "jvp": (vector, {"tangents": DX}, lambda: jax.jvp(lambda x: vector(x, Z), (X,), (DX,))),
    "vjp": (
        vector,
        {"cotangent": DX},
        lambda: (vector(X, Z), jax.vjp(lambda x: vector(x, Z), X)[1](DX)[0]),
    ),
    "hvp": (scalar, {"tangents": DX}, lambda: jax.hessian(scalar)(X, Z) @ DX),
}
OPTIONS = [
    {},
    {"remat": True},
    {"pad": {"n": [8]}},
    {"chunk": {"n": 3}},
    {"memory": "1GiB"},
    {"precision": "f64"},
    {"compiler": "fast"},
]


@functools.cache
def references(kind):
    """What JAX has, by name and for one argument: the same for all options."""
    return NAMED[kind][2](), SINGLE[kind][2]()


SQUARE = ("jacobian", "value_and_jacobian", "hessian")  # has blocks with an axis twice
PAIRS = [
    (kind, options)
    for kind in NAMED
    for options in OPTIONS
    if kind not in SQUARE or not {"pad", "chunk"} & set(options)
    if kind != "hessian_diag" or "chunk" not in options  # its directions are such a block
]


@pytest.mark.core(
    "hessian-{}",
    "grad-{}",
    "value_and_grad-{}",
    "value_and_jacobian-{}",
    "vjp-{}",
    "grad-{'chunk*",
    "grad-{'pad*",
    "grad-{'remat*",
    "grad-{'compiler*",
    "grad-{'precision*",
    "hvp-{'pad*",
    "jvp-{'chunk*",
    "jacobian-{'remat*",
)
@pytest.mark.parametrize(("kind", "options"), PAIRS, ids=str)
def test_derivatives_are_those_of_jax(kind, options, recwarn):
    """By name, for one argument, by keyword: with every option, JAX's numbers in jitney's
    structure.
    """
    fn, directions, _ = NAMED[kind]
    named, single = references(kind)
    f = optimize(fn, **options)
    close(getattr(f, kind)(X, Z, **directions), named)
    close(getattr(f, kind)(z=Z, x=X, wrt=("x", "z"), **directions), named)
    _, directions, _ = SINGLE[kind]
    close(getattr(f, kind)(X, Z, wrt="x", **directions), single)
    assert not recwarn.list


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["jacobian", "hessian"])
def test_an_axis_twice_in_a_result_is_padded_or_runs_exact(kind):
    """The square blocks have it twice; the numbers are right either way."""
    fn, directions, want = NAMED[kind]
    f = optimize(fn, pad={"n": [8]})
    try:
        got = getattr(f, kind)(X, Z, **directions)
    except UserWarning:
        got = getattr(f, kind)(X, Z, **directions)
    close(got, want())


def test_linearize_keeps_what_was_computed():
    """The linear function takes directions one by one, under `vmap`, in another jit; the body is
    traced once.
    """
    body = count_traces(vector)
    f = optimize(body)
    value, linear = f.linearize(X, Z)
    close(value, vector(X, Z))
    for t in (X, X * 0 + 1):
        close(linear({"x": t, "z": Z}), jax.jvp(vector, (X, Z), (t, Z))[1])
    _, one = f.linearize(X, Z, wrt="x")
    close(jax.vmap(one)(jnp.eye(4)), jax.jacfwd(vector)(X, Z).T)
    close(
        jax.jit(lambda linear, t: linear(t))(one, X), jax.jvp(lambda x: vector(x, Z), (X,), (X,))[1]
    )
    f.linearize(X + 1, Z)
    assert body.traces == 2  # once with respect to both, once to one
    with pytest.raises(DerivativeError, match="the directions are not given by name"):
        linear(X)
    with pytest.raises(DerivativeError, match=r"is float32\[3\], for float32\[4\]"):
        one(X[1:])


def test_nothing_is_traced_before_it_is_called():
    """And each derivative is one trace, whatever the others do."""
    body = count_traces(vector)
    f = lazy_derivatives(body)
    f.jacobian, f.grad, f.hessian.program()
    assert body.traces == 0
    for _ in range(3):
        f.value_and_jacobian(X, Z)
    assert body.traces <= 2  # JAX asks once for shapes
    stats = f.value_and_jacobian.program().stats
    assert stats.traces == stats.compiles + stats.persistent_hits == 1
    assert f.stats.compiles == 0


def test_defaults_are_said_once():
    """One name gives the derivative itself, several a dict; `skip` leaves out of all."""
    assert lazy_derivatives(wrt="x")(vector).jacobian(X, Z).shape == (4, 4)
    assert set(lazy_derivatives(wrt=("z",))(vector).jacobian(X, Z)) == {"z"}
    assert set(lazy_derivatives(skip="x")(vector).jacobian(X, Z)) == {"z"}
    assert set(lazy_derivatives(vector).jacobian(X, Z)) == {"x", "z"}
    assert lazy_derivatives(wrt="x")(optimize(vector)).jacobian(X, Z, wrt="z").shape == (4, 3)


class Layer(eqx.Module):
    weight: Float[Array, "out in"]
    steps: Int[Array, ""]
    name: str = eqx.field(static=True)

    @lazy_derivatives
    def loss(self, x: Float[Array, "in"]) -> Float[Array, ""]:
        return jnp.sum(jnp.tanh(self.weight @ x) ** 2)

    @optimize
    def __call__(self, x: Float[Array, "in"], k: int = 2) -> Float[Array, ""]:
        return jnp.sum((self.weight @ x) ** k)


LAYER = Layer(rows(2, 3), weak(1), "layer")


@pytest.mark.rest
def test_derivatives_of_modules_are_modules():
    """With None where there is nothing to differentiate, as Equinox has it; by method, call, and
    bound to an instance.
    """
    want = eqx.filter_grad(lambda layer, x: layer.loss(x))(LAYER, Z)
    got = LAYER.loss.grad(Z)
    close(got["self"], want)
    assert got["self"].steps is None
    close(got["x"], jax.grad(LAYER.loss)(Z))
    close(Layer.loss.grad(LAYER, Z, wrt="self"), want)
    close(
        optimize(LAYER).grad(Z, wrt="x", k=3),
        jax.grad(lambda x: jnp.sum((LAYER.weight @ x) ** 3))(Z),
    )
    other = Layer(LAYER.weight * 2, jnp.asarray(1), "layer")
    close(other.loss.grad(Z, wrt="x"), jax.grad(other.loss)(Z))
    assert Layer.loss.grad.program().stats.traces == 1


@pytest.mark.rest
def test_derivatives_of_trees_have_their_structure():
    """Dicts, tuples and lists, in arguments and results; the arguments' keys may be any."""

    @lazy_derivatives(wrt=("p", "x"))
    def f(p, x):
        return {"a": p["p"] * x, "b": (jnp.sum(p["x"][0]) * x[:1],)}

    p, x = {"p": rows(), "x": [rows(2), 3]}, rows(3)
    got = f.jacobian(p, x)
    assert got["p"]["a"]["p"].shape == (3,)
    assert got["p"]["b"][0]["x"][0].shape == (1, 2)
    assert got["p"]["b"][0]["x"][1] is None
    close(got["x"]["a"], p["p"] * jnp.eye(3))
    g = lazy_derivatives(wrt=("p", "x"))(lambda p, x: jnp.sum(p["p"] ** 2 * x["x"] ** 2 * p["x"]))
    p, x = {"p": rows(2), "x": rows(2)}, {"p": rows(2), "x": rows(2)}
    found = g.hessian(p, x)
    want = jax.jacfwd(jax.grad(lambda p: jnp.sum(p["p"] ** 2 * x["x"] ** 2 * p["x"])))(p)
    close(found["p"]["p"], want)


def test_what_has_a_backward_pass_only_is_made_in_reverse():
    """However many results it has, and wherever it is called."""

    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, ct: (3 * x**2 * ct,))
    f = optimize(lambda x: jnp.concatenate([jax.jit(cube)(x), x, x, x]))
    close(f.jacobian(X, wrt="x")[:4], jnp.diag(3 * X**2))


@pytest.mark.core("2-7-auto", "7-2-auto")
@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
@pytest.mark.parametrize(("m", "n"), [(2, 7), (7, 2), (1, 1), (3, 0), (0, 3)])
def test_modes_give_the_same(m, n, mode):
    """Of tall, wide and empty Jacobians."""

    def f(w: Float[Array, "m n"], x: Float[Array, "n"]) -> Float[Array, "m"]:
        return jnp.tanh(w @ x)

    w, x = rows(m, n), rows(n)
    want = jax.jit(jax.jacfwd(f, 1))(w, x)
    close(lazy_derivatives(wrt="x", mode=mode)(f).jacobian(w, x), want)


def test_the_plan_says_how():
    """The mode, why, what the other one costs, and where `remat` stands."""

    @lazy_derivatives(wrt="x")
    def f(w: Float[Array, "m n"], x: Float[Array, "n"]) -> Float[Array, "m"]:
        return jnp.tanh(w @ x)

    lines = {
        d["name"]: d["why"] for d in f.jacobian.plan(sizes={"m": 2, "n": 7}).to_dict()["decisions"]
    }
    assert lines["derivative"] == "reverse: 7 forward passes or 2 backward ones, of about 2 each"
    lines = {
        d["name"]: d["why"] for d in f.jacobian.plan(sizes={"m": 9, "n": 7}).to_dict()["decisions"]
    }
    assert lines["derivative"].startswith("forward: 7 forward passes")
    g = optimize(scalar, remat="dots_saveable")
    lines = {
        d["name"]: d["why"] for d in g.grad.plan(sizes={"n": 2, "k": 7}).to_dict()["decisions"]
    }
    assert "dots_saveable" in lines["remat"]


@pytest.mark.rest
def test_padded_gradients_share_a_program():
    """Seven sizes of a bucket; gradients with the axis come back at their true length, bit for bit
    those of a loop over rows.
    """
    f = optimize(pad={"n": [16]})(scalar)
    for n in range(9, 17):
        x = rows(n)
        close(f.grad(np.asarray(x), Z), dict(zip("xz", jax.grad(scalar, BOTH)(x, Z), strict=True)))
    assert f.grad.program().stats.compiles == 1


def norms(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """Infinite slopes at zero rows, which a padding of zeros would bring in."""
    return jnp.sum(jnp.linalg.norm(x * w, axis=1)) / x.shape[0] + jnp.var(jnp.log(jnp.abs(x @ w)))


@jax.jit
def slopes_of_norms(w, x):
    return dict(zip("wx", jax.grad(norms, BOTH)(w, x), strict=True)), jax.hessian(norms)(w, x) @ w


@pytest.mark.core("9-{'pad*")
@pytest.mark.parametrize("options", [{"pad": {"n": [16]}}, {"chunk": {"n": 4}}], ids=str)
@pytest.mark.parametrize("n", [9, 15, 16])
def test_no_nan_comes_from_padding(options, n):
    """Forward and backward."""
    w, x = rows(3), rows(n, 3)
    f = optimize(norms, **options)
    gradient, product = slopes_of_norms(w, x)
    close(f.grad(w, x), gradient, rtol=1e-3)
    close(f.hvp(w, x, wrt="w", tangents=w), product, rtol=1e-3)


def test_each_argument_has_a_derivative_of_its_own():
    """One after the other, of one program."""
    f = optimize(scalar)
    for _ in range(2):
        close(f.grad(X, Z, wrt="x"), jax.grad(scalar, 0)(X, Z))
        close(f.grad(X, Z, wrt="z"), jax.grad(scalar, 1)(X, Z))


@pytest.mark.rest
def test_a_mapped_gradient_is_of_each_element():
    """`vmap` stands around the derivative."""
    f = optimize(vmap="batch")(scalar)
    xs = rows(5, 4)
    close(f.grad(xs, Z, wrt="x"), jax.vmap(lambda x: jax.grad(scalar)(x, Z))(xs))
    close(
        f.jvp(xs, Z, wrt="x", tangents=xs),
        jax.vmap(lambda x: jax.jvp(lambda x: scalar(x, Z), (x,), (x,)))(xs),
    )


@pytest.mark.rest
def test_other_transforms_go_around_it():
    """`jit`, `vmap` and another derivative."""
    f = optimize(scalar)
    close(jax.jit(f.grad)(X, Z), f.grad(X, Z))
    close(
        jax.vmap(lambda x: f.grad(x, Z, wrt="x"))(rows(1, 4) * 0 + X), f.grad(X, Z, wrt="x")[None]
    )
    close(jax.jacfwd(lambda x: f.grad(x, Z, wrt="x"))(X), jax.hessian(scalar)(X, Z))


@pytest.mark.rest
def test_gradients_stream():
    """Over data in pieces; facts and strategies are of derivatives too."""

    @optimize
    def loss(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    w, x = rows(3), rows(100, 3)
    found = stream(
        lazy_derivatives(wrt="w")(loss).grad,
        w=w,
        x=np.asarray(x),
        chunk={"n": 7},
        progress=False,
    ).result
    close(found, jax.grad(loss)(w, x))
    assert strategy(loss.grad, sizes={"n": 100, "k": 3}).chosen.name == "in memory"
    assert axes(loss.grad, sizes={"n": 100, "k": 3})["n"].refused is None


def test_equal_functions_share_derivatives():
    """As they share programs; and they survive a pickle."""
    body = count_traces(scalar)
    a, b = optimize(body), optimize(body)
    a.grad(X, Z)
    b.grad(X, Z)
    assert body.traces == 1
    copy = pickle.loads(pickle.dumps(MODULE_LEVEL.grad.program()))
    close(copy(X, Z), MODULE_LEVEL.grad(X, Z))


MODULE_LEVEL = optimize(scalar)


def test_donated_arguments_live():
    """A derivative gives no buffer away: that is for the step that asked for it."""
    f = optimize(donate="x")(lambda x: jnp.sum(x**2))
    x = rows(3)
    close(f.grad(x, wrt="x"), 2 * x)
    close(x + 0, x)


def test_static_arguments_stay_static():
    """By option and by annotation."""

    def f(x: Float[Array, "n"], k: int, names: list[str]) -> Float[Array, ""]:
        return jnp.sum(x**k) * len(names)

    g = optimize(f, static="names")
    close(g.grad(X, 3, ["a", "b"]), {"x": 6 * X**2})
    with pytest.raises(OptionError, match="'names' is static"):
        g.grad(X, 3, ["a"], wrt="names")
    with pytest.raises(DerivativeError, match="'k' is static: 3"):
        g.grad(X, 3, ["a"], wrt="k")


REFUSED = {
    "unknown name": (
        lambda: optimize(vector).jacobian(X, Z, wrt="q"),
        "'q' is not an argument.\nThe arguments are x, z.",
    ),
    "unknown name at decoration": (
        lambda: lazy_derivatives(wrt=("x", "q"))(vector),
        "'q' is not an argument",
    ),
    "unknown name to skip": (lambda: lazy_derivatives(skip="q")(vector), "'q' is not an argument"),
    "no names": (lambda: optimize(vector).jacobian(X, Z, wrt=()), "wrt=() does not name arguments"),
    "a number": (lambda: optimize(vector).jacobian(X, Z, wrt=0), "wrt=0 does not name arguments"),
    "a name twice": (
        lambda: optimize(vector).jacobian(X, Z, wrt=("x", "x")),
        "does not name arguments",
    ),
    "not a scalar": (
        lambda: optimize(vector).grad(X, Z),
        "the function returns an array float32[4].\n`grad` is of one real number.",
    ),
    "hessian of a vector": (
        lambda: optimize(vector).hessian(X, Z),
        "`hessian` is of one real number",
    ),
    "no array": (lambda: optimize(lambda x: 3.0).grad(X), "the function returns a float"),
    "integers": (
        lambda: optimize(lambda x: jnp.sum(x) * 1.0).grad(jnp.arange(3), wrt="x"),
        "'x' is int32",
    ),
    "nothing to vary": (
        lambda: optimize(lambda x: jnp.sum(x) * 1.0).grad(jnp.arange(3)),
        "no argument holds a floating-point array",
    ),
    "complex": (
        lambda: optimize(lambda x: jnp.abs(x).sum()).grad(X.astype(jnp.complex64)),
        "x is complex64",
    ),
    "integer result": (
        lambda: optimize(lambda x: {"n": jnp.argmax(x)}).jacobian(X),
        "the result['n'] is int32[]",
    ),
    "text in a result": (lambda: optimize(lambda x: (x, "s")).jacobian(X), "the result[1] is 's'"),
    "tangents by name": (
        lambda: optimize(vector).jvp(X, Z, tangents=X),
        "the tangents are not given by name",
    ),
    "other tangents": (lambda: optimize(vector).jvp(X, Z, wrt=("x",), tangents={"z": Z}), "of 'x'"),
    "a tangent's dtype": (
        lambda: optimize(lambda x: x * 2).jvp(X, tangents={"x": X.astype("f2")}),
        "is float16[4], for float32[4]",
    ),
    "a tangent's structure": (
        lambda: optimize(lambda x: x["a"]).jvp({"a": X}, tangents={"x": X}),
        "has another structure",
    ),
    "a cotangent's shape": (
        lambda: optimize(lambda x: x * 2).vjp(X, cotangent=X[1:]),
        "is float32[3], for float32[4]",
    ),
    "a mode": (lambda: lazy_derivatives(mode="backward")(vector), "mode='backward' is not a mode"),
    "sparse": (
        lambda: lazy_derivatives(sparse="yes")(vector),
        "sparse='yes' is neither True nor False",
    ),
    "wrt and skip": (
        lambda: lazy_derivatives(wrt="x", skip="z")(vector),
        "`wrt` and `skip` are both given",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_derivative_is_refused(case):
    """With what it is, the rule, and what to use."""
    call, message = REFUSED[case]
    with pytest.raises((DerivativeError, OptionError)) as error:
        call()
    assert message in str(error.value)
    assert "\nFix: " in str(error.value)


@pytest.mark.parametrize("kind", ["jvp", "hvp"])
def test_ahead_of_time_a_direction_is_given_as_in_a_call(kind):
    """`plan` and `compile` take `tangents`, and the call after them traces nothing."""
    body = count_traces(scalar)
    derivative = getattr(optimize(body), kind)
    assert "forward" in str(derivative.plan(X, Z, wrt="x", tangents=DX))
    derivative.compile(X, Z, wrt="x", tangents=DX)
    before = body.traces
    derivative(X, Z, wrt="x", tangents=DX)
    assert body.traces == before


@pytest.mark.parametrize(
    ("kind", "name"), [("jvp", "tangents"), ("hvp", "tangents"), ("vjp", "cotangent")]
)
def test_a_missing_direction_is_a_type_error(kind, name):
    """As a missing argument is."""
    with pytest.raises(TypeError, match=f"missing {name}=..."):
        getattr(optimize(scalar), kind)(X, Z)


def test_static_and_class_methods():
    """With `lazy_derivatives` above, since below `classmethod` Python 3.13 and newer do not bind
    what is read from a program.
    """

    class Model:
        @lazy_derivatives(wrt="x")
        @staticmethod
        def energy(x):
            return jnp.sum(x**2)

        @lazy_derivatives(wrt="x")
        @classmethod
        def scaled(cls, x):
            return jnp.sum(x**3)

    close(Model.energy.grad(X), 2 * X)
    close(Model.scaled.grad(X), 3 * X**2)
    close(Model().scaled.grad(X), 3 * X**2)
    close(Model.scaled(X), jnp.sum(X**3))


@pytest.mark.parametrize("options", [{}, {"pad": {"n": "pow2"}}, {"remat": True}])
def test_has_aux_hands_on_what_stands_beside_the_number(options):
    """As `jax.grad` and `jax.value_and_grad` do; what is not an array passes too."""

    @optimize(**options)
    def loss(x: Float[Array, "n"]):
        return (x**2).sum(), {"twice": 2 * x, "name": "loss"}

    x = jnp.arange(3.0)
    grad, aux = loss.grad(x, wrt="x", has_aux=True)
    np.testing.assert_array_equal(grad, 2 * np.arange(3.0))
    np.testing.assert_array_equal(aux["twice"], 2 * np.arange(3.0))
    assert aux["name"] == "loss"
    (value, aux), grad = loss.value_and_grad(x, wrt="x", has_aux=True)
    assert float(value) == 5
    np.testing.assert_array_equal(grad, aux["twice"])


def test_has_aux_is_refused_where_nothing_is_handed_on():
    """A Jacobian is of everything; two things are what it asks for."""
    f = optimize(lambda x: (x**2).sum())
    with pytest.raises(OptionError, match="`jacobian` takes no has_aux=True"):
        f.jacobian(jnp.ones(3), has_aux=True)
    with pytest.raises(DerivativeError, match="return loss, aux"):
        f.grad(jnp.ones(3), has_aux=True)


def test_a_derivative_counts_its_calls():
    """With respect to whatever; those of the function and of other derivatives are their own."""
    f = optimize(lambda x, y: (x * y).sum())
    for wrt in ("x", "x", "y"):
        f.grad(jnp.ones(3), jnp.ones(3), wrt=wrt)
    f.hessian(jnp.ones(3), jnp.ones(3))
    assert (f.grad.stats.calls, f.grad.stats.traces, f.stats.calls) == (3, 2, 0)


def test_the_gradient_of_a_mapped_loss_is_one_for_each_example_and_the_plan_says_so():
    """That of the mean is of a program around it."""

    @optimize(vmap="batch")
    def loss(w: Float[Array, "k"], x: Float[Array, "k"]) -> Float[Array, ""]:
        return (w * x).sum() ** 2

    @optimize
    def mean(w, xs):
        return loss(w, xs).mean()

    w, xs = jnp.arange(1.0, 3.0), jnp.arange(6.0).reshape(3, 2)
    each = 2 * (np.asarray(xs) @ np.asarray(w))[:, None] * np.asarray(xs)
    np.testing.assert_allclose(loss.grad(w, xs, wrt="w"), each, rtol=1e-6)
    np.testing.assert_allclose(mean.grad(w, xs, wrt="w"), each.mean(0), rtol=1e-6)
    assert "one for each batch (`vmap`)" in str(loss.grad.plan(w, xs, wrt="w"))


@pytest.mark.core("{'roll': 'auto'}", "{'remat': True}")
@pytest.mark.parametrize(
    "options", [{"roll": "auto"}, {"remat": True}, {"memory": "1GiB"}], ids=str
)
def test_a_rule_that_closes_over_a_value_of_the_trace_is_a_sentence(options):
    """What was traced first is over when the rule runs. Without the option, and with the value
    handed in, it is JAX's gradient.
    """

    def through(x, s, *, hands_in):
        @jax.custom_vjp
        def straight(y, _):
            return jnp.round(y)

        straight.defvjp(
            lambda y, r: (jnp.round(y), r),
            lambda r, ct: (ct * (r if hands_in else s), jnp.zeros_like(r)),
        )
        return straight(x, s)

    def body(x, w, *, hands_in):
        s = jnp.sum(w)
        for _ in range(5):
            x = jnp.tanh(through(x * s, s, hands_in=hands_in)) + x
        return jnp.sum(x)

    x, w = jnp.arange(3.0), jnp.ones(2)
    expected = jax.jit(jax.grad(lambda x, w: body(x, w, hands_in=True)))(x, w)
    for hands_in, chosen in ((False, {}), (True, options)):
        f = optimize(**chosen)(lambda x, w, hands_in=hands_in: body(x, w, hands_in=hands_in))
        np.testing.assert_allclose(f.grad(x, w, wrt="x"), expected, rtol=1e-6)
    with pytest.raises(
        TraceError,
        match=(
            r"a value of a trace that is over is read[\s\S]*Fix: give the rule that value as an"
            r" argument"
        ),
    ):
        optimize(**options)(lambda x, w: body(x, w, hands_in=False)).grad(x, w, wrt="x")


def test_stats_of_a_function_count_the_calls_of_its_derivatives():
    """By derivative, with respect to whatever; its own calls apart."""

    @optimize
    def square(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x * x + y)

    x = jnp.ones(3)
    square.grad(x, x)
    square.grad(x, x, wrt="x")
    square.value_and_grad(x, x)
    assert square.stats.calls == 0
    assert square.stats.derivatives == {"grad": 2, "value_and_grad": 1}
    assert "f.grad" in str(square.stats)
    assert square.stats.to_dict()["derivatives"] == {"grad": 2, "value_and_grad": 1}


def test_what_is_asked_of_a_derivative_takes_its_directions():
    """As its calls and plans do."""

    def squares(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x**2

    f, x = optimize(squares), jnp.arange(3.0)
    assert f.jvp.axes(x, tangents={"x": x})["n"].kind == "pointwise"
    assert f.vjp.axes(x, cotangent=x)["n"].kind == "pointwise"
