"""What `@optimize` decorates, and that a decorated function stays what it was."""

import copy
import functools
import inspect
import pickle
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import Program, lazy_derivatives, optimize
from jitney.errors import ContractError
from tests._arrays import array, weak

X = np.arange(3, dtype=np.float32)


@optimize
def scaled(
    x: Float[Array, "n"],
    /,
    by: float = 2.0,
    *more: Float[Array, ""],
    shift: float = 0.0,
    **rest: Float[Array, ""],
) -> Float[Array, "n"]:
    """Scale, shift and add."""
    return x * by + shift + sum(more, jnp.zeros(())) + sum(rest.values(), jnp.zeros(()))


@optimize
def forward(x: "Float[Array, 'n']", other: "Later") -> "Float[Array, 'n']":
    return x * other.factor


class Later(eqx.Module):
    factor: Float[Array, ""]


def plain(x):
    """Not annotated."""
    return x + 1


class Line(eqx.Module):
    """Methods of every kind."""

    slope: Float[Array, ""]
    name: str = eqx.field(static=True, default="line")

    @optimize
    def __call__(self, t: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.slope * t

    @optimize(vmap="batch")
    def shifted(self, t: Float[Array, "n"], *, by: float = 1.0) -> Float[Array, "n"]:
        return self(t) + by

    @staticmethod
    @optimize
    def inner_static(t: Float[Array, "n"]) -> Float[Array, "n"]:
        return t * 3

    @optimize
    @staticmethod
    def outer_static(t: Float[Array, "n"]) -> Float[Array, "n"]:
        return t * 3

    @classmethod
    @optimize
    def inner_class(cls, t: Float[Array, "n"]):
        return cls.__name__, t * 4

    @optimize
    @classmethod
    def outer_class(cls, t: Float[Array, "n"]):
        return cls.__name__, t * 4


CALLS = [
    ((X,), {}, X * 2),
    ((X, 3.0), {}, X * 3),
    ((X,), {"by": 3.0}, X * 3),
    ((X, 1.0, array(1.0), array(1.0)), {}, X + 2),
    ((X,), {"shift": 1.0, "a": array(1.0), "b": array(1.0)}, X * 2 + 3),
]


@pytest.mark.parametrize(("args", "kwargs", "expected"), CALLS)
def test_every_kind_of_parameter(args, kwargs, expected):
    """Positional-only, with defaults, `*args`, keyword-only and `**kwargs`."""
    np.testing.assert_allclose(scaled(*args, **kwargs), expected)


def test_it_keeps_name_docstring_and_signature():
    """What tools and people read of a function."""
    raw = scaled.__wrapped__
    assert isinstance(scaled, Program)
    assert (scaled.__name__, scaled.__qualname__, scaled.__module__, scaled.__doc__) == (
        raw.__name__,
        raw.__qualname__,
        raw.__module__,
        raw.__doc__,
    )
    assert inspect.signature(scaled) == inspect.signature(raw)
    assert inspect.unwrap(scaled) is raw
    assert "scaled() at test_optimize.py:" in repr(scaled)


def test_names_that_are_defined_later():
    """Text annotations, of classes further down in the module."""
    np.testing.assert_allclose(forward(X, Later(jnp.array(2.0))), X * 2)
    with pytest.raises(ContractError):
        forward(jnp.ones((2, 2)), Later(jnp.array(2.0)))


def test_names_of_the_decorating_scope():
    """A class of a function's own, named in an annotation as text."""

    class Local(eqx.Module):
        factor: Float[Array, ""]

    @optimize
    def f(x: "Float[Array, 'n']", other: "Local"):
        return x * other.factor

    np.testing.assert_allclose(f(X, Local(jnp.array(2.0))), X * 2)


def test_lambdas_partials_and_closures():
    """A partial's arguments are traced, a closure's arrays are part of the program."""
    held = jnp.full(3, 2.0)
    np.testing.assert_allclose(optimize(lambda x: x + held)(X), X + 2)
    twice = optimize(functools.partial(lambda x, y, k: x * y + k, jnp.full(3, 2.0), k=jnp.ones(())))
    np.testing.assert_allclose(twice(X), X * 2 + 1)
    nested = optimize(functools.partial(functools.partial(lambda a, b, c: a + b + c, 1.0), 2.0))
    np.testing.assert_allclose(nested(X), X + 3)


def test_partials_share_a_program():
    """Other arrays of the same shape compile nothing."""

    def body(w, x):
        return w * x

    first = optimize(functools.partial(body, jnp.ones(3)))
    second = optimize(functools.partial(body, jnp.ones(3) * 5))
    first(X)
    np.testing.assert_allclose(second(X), 5 * X)
    assert second.stats.traces == 1


def test_methods_of_modules():
    """Called on an instance, through the class, and mapped."""
    line = Line(jnp.array(2.0))
    np.testing.assert_allclose(line(X), X * 2)
    np.testing.assert_allclose(Line.__call__(line, X), X * 2)
    np.testing.assert_allclose(line.shifted(np.stack([X, X]), by=3.0), np.stack([X, X]) * 2 + 3)
    assert isinstance(line.shifted, Program)
    assert line.shifted.__wrapped__(X).shape == (3,)


def test_instances_share_a_program():
    """Two lines compile once; a static field tells them apart."""
    before = Line.__call__.stats.traces
    for slope in (1.0, 2.0, 3.0):
        Line(jnp.array(slope), "shared")(X)
    assert Line.__call__.stats.traces == before + 1
    Line(jnp.array(1.0), "another")(X)
    assert Line.__call__.stats.traces == before + 2


@pytest.mark.parametrize("on", [Line, Line(weak(1.0))], ids=["class", "instance"])
def test_static_and_class_methods(on):
    """In both orders of decorators, through the class and an instance."""
    np.testing.assert_allclose(on.inner_static(X), X * 3)
    np.testing.assert_allclose(on.outer_static(X), X * 3)
    for method in (on.inner_class, on.outer_class):
        name, out = method(X)
        assert name == "Line"
        np.testing.assert_allclose(out, X * 4)


@pytest.mark.rest
def test_a_module_itself_and_a_bound_method():
    """`optimize(model)` and `optimize(model.method)` take the instance's arrays as arguments."""

    class Affine(eqx.Module):
        w: Array

        def __call__(self, x):
            return self.w * x

        def twice(self, x):
            return self(self(x))

    model = Affine(jnp.full(3, 2.0))
    np.testing.assert_allclose(optimize(model)(X), 2 * X)
    np.testing.assert_allclose(optimize(model.twice)(X), 4 * X)
    mlp = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    np.testing.assert_allclose(optimize(mlp)(X), mlp(jnp.asarray(X)), rtol=1e-5)


def test_a_program_is_decorated_again():
    """The outer options are added around."""
    np.testing.assert_allclose(
        optimize(vmap={"b": {"x": 0}})(optimize(plain))(np.stack([X, X])), np.stack([X, X]) + 1
    )


def test_it_pickles_and_copies_like_the_function():
    """A function of a module by name, also in another process; a lambda not at all; a method with
    its instance.
    """
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    assert copy.deepcopy(scaled) is scaled
    assert copy.copy(scaled) is scaled
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(optimize(lambda x: x))
    program = optimize(plain)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(program))(X), X + 1)
    line = copy.deepcopy(Line(jnp.array(2.0)))
    np.testing.assert_allclose(line(X), X * 2)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(Line(jnp.array(3.0))))(X), X * 3)


def test_pickles_and_copies_keep_the_defaults_of_derivatives():
    """Without `wrt` the gradient is that of the decorator's, bound or not."""
    program = lazy_derivatives(wrt="x")(optimize(plain))
    sent = pickle.loads(pickle.dumps(program))
    bound = copy.deepcopy(program.bound_to((jnp.asarray(X),), {}))
    for one in (sent, bound):
        assert one.defaults == program.defaults
        assert one.defaults.wrt == ("x",)


def test_it_pickles_into_another_process(tmp_path, monkeypatch):
    """By the function's name, with the options; what another process has pickled is read here."""
    (tmp_path / "own.py").write_text(
        "from jitney import optimize\ndef f(x): return x + 1\ng = optimize(f,"
        " remat=True)\n@optimize\ndef h(x): return x * 2\n"
    )
    dump = "import pickle, own, sys; sys.stdout.buffer.write(pickle.dumps((own.g, own.h)))"
    data = subprocess.run(
        [sys.executable, "-c", dump], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    monkeypatch.syspath_prepend(tmp_path)
    g, h = pickle.loads(data)
    del sys.modules["own"]
    assert (float(g(1.0)), float(h(2.0)), g.options.remat) == (2.0, 4.0, "nothing_saveable")


def test_a_contract_error_names_everything():
    """Function, file and line, both arguments, both sizes."""

    @optimize
    def f(x: Float[Array, "n"], y: Float[Array, "n"]):
        return x + y

    with pytest.raises(
        ContractError,
        match=r"f\(\) at test_optimize.py:\d+: axis 'n' has two sizes, 3 from 'x' and 4 from 'y'",
    ):
        f(X, np.ones(4, np.float32))
