"""Functions under run-time type checkers: below `@optimize`, above it, and by hooks of imports."""

import dataclasses
import functools
import importlib
import inspect
import re
import sys
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from beartype.claw import beartype_package
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import Array, Float, Float32, Int, ScalarLike, install_import_hook, jaxtyped
from jaxtyping import TypeCheckError as JaxtypingError

import jitney
from jitney import optimize
from jitney.errors import ContractError, DerivativeError, ExportError, TraceError
from tests._arrays import array

W = np.float32([0.5, -1.0, 2.0])
N = 6
ROWS = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
X, V = array(ROWS), array(W)
LINE = array(ROWS[:, 0])


def plain_checker(fn):
    """A checker of nobody's: it knows classes and jaxtyping's arrays, and wraps as others do."""

    @functools.wraps(fn)
    def look(*args, **kwargs):
        hints = typing.get_type_hints(fn)
        given = inspect.signature(fn).bind(*args, **kwargs).arguments
        for name, value in given.items():
            parts = typing.get_args(hints.get(name)) or (hints.get(name, object),)
            if not any(isinstance(value, part) for part in parts):
                raise TypeError(f"{name}={value!r} is not a {hints[name]}")
        return fn(*args, **kwargs)

    return look


def typeguard_checker(fn):
    return pytest.importorskip("typeguard").typechecked(fn)


CHECKERS = {
    "jaxtyped": jaxtyped(typechecker=beartype),
    "beartype": beartype,
    "wraps": plain_checker,
    "typeguard": typeguard_checker,
}


def each_checker(test):
    """The core has one of them."""
    each = pytest.mark.parametrize("checker", CHECKERS.values(), ids=CHECKERS)
    return pytest.mark.core("jaxtyped*")(each(test))


def rows(x: Float[Array, "n d"], w: Float[Array, "d"]) -> Float[Array, "n"]:
    return jnp.tanh(x @ w)


def mean(x: Float[Array, "n d"], w: Float[Array, "d"]) -> Float[Array, ""]:
    return jnp.mean(jnp.tanh(x @ w))


def of_row(x: Float[Array, "d"], w: Float[Array, "d"]) -> Float[Array, ""]:
    return jnp.tanh(x @ w)


def single(x: Float32[Array, "n d"], w: Float32[Array, "d"]) -> Float32[Array, "n"]:
    return jnp.tanh(x @ w)


def scaled(x: Float[Array, "n"], lr: float) -> Float[Array, "n"]:
    return x * lr


def either(x: Float[Array, "n"], lr: float | Float[Array, ""]) -> Float[Array, "n"]:
    return x * lr


def like(x: Float[Array, "n"], lr: ScalarLike) -> Float[Array, "n"]:
    return x * lr


def power(x: Float[Array, "n"], k: int) -> Float[Array, "n"]:
    return x**k


TANH = np.tanh(ROWS.astype(float) @ W)
SLOPES = (1 - TANH**2)[:, None] * ROWS  # of each row by `w`


def below(checker, fn, **options):
    return optimize(**options)(checker(fn))


OPTIONS = {
    "none": {},
    "pad": {"pad": {"n": "pow2"}},
    "chunk": {"chunk": {"n": 2}},
    "f64": {"precision": "f64"},
    "verify": {"verify": True},
    "program": {"cache": "program"},
    "remat": {"remat": True},
}


@pytest.mark.core("jaxtyped-none", "jaxtyped-chunk", "jaxtyped-verify", "jaxtyped-f64")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@each_checker
def test_a_checker_below_sees_what_it_accepts(options, checker):
    """Padded, in chunks, in another precision: the body is checked on the shapes that its
    annotations name, and results are those of NumPy.
    """
    f, loss = below(checker, rows, **options), below(checker, mean, **options)
    np.testing.assert_allclose(f(X, V), TANH, rtol=1e-5)
    np.testing.assert_allclose(loss(X, V), TANH.mean(), rtol=1e-5)
    np.testing.assert_allclose(f(X[:5], V), TANH[:5], rtol=1e-5)


@each_checker
def test_a_checker_below_sees_one_element_of_a_mapped_axis(checker):
    """`vmap` adds its axis outside of the checker."""
    np.testing.assert_allclose(below(checker, of_row, vmap="n")(X, V), TANH, rtol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "f64"])
@each_checker
def test_a_checker_below_sees_the_dtypes_of_the_annotations(checker, precision):
    """A policy of products changes what is computed, and not the arrays that a checker of Float32
    looks at.
    """
    got = below(checker, single, precision=precision)(X, V)
    np.testing.assert_allclose(got, TANH, atol=2e-2)


@pytest.mark.rest
@each_checker
def test_derivatives_of_a_function_that_is_checked(checker):
    """Gradient and Jacobian trace through the checker."""
    gradient = below(checker, mean).grad(X, V)["w"]
    np.testing.assert_allclose(gradient, SLOPES.mean(0), rtol=1e-4)
    jacobian = below(checker, rows).jacobian(X, V)["w"]
    np.testing.assert_allclose(jacobian, SLOPES, rtol=1e-4)


@each_checker
def test_a_stream_of_a_function_that_is_checked(checker):
    """Chunks of a stream have the rank that the annotation names."""
    got = below(checker, mean).stream(ROWS, V, chunk=2).result
    np.testing.assert_allclose(got, TANH.mean(), rtol=1e-5)


@pytest.mark.parametrize("checker", [CHECKERS["jaxtyped"], beartype], ids=["jaxtyped", "beartype"])
def test_sizes_of_a_bucket_share_one_program_below_a_checker(checker):
    """jaxtyping compares symbols with symbols, which is the same at each size."""
    f = below(checker, rows, pad={"n": "pow2"})
    for n in (5, 6):
        np.testing.assert_allclose(f(X[:n], V), TANH[:n], rtol=1e-5)
    assert f.stats.traces == 1
    assert "each new size" not in str(f.plan(X, V))


def test_a_function_that_is_checked_is_exported_for_a_range(tmp_path):
    """One program for all sizes, with the checker inside."""
    f = below(CHECKERS["jaxtyped"], rows)
    f.export(tmp_path / "rows.jitney", X, V, sizes={"n": range(2, 65)})
    got = jitney.load(tmp_path / "rows.jitney")(X[:4], V)
    np.testing.assert_allclose(got, TANH[:4], rtol=1e-5)


def test_a_wrapper_that_may_look_at_sizes_is_named_by_an_export(tmp_path):
    """A wrapper of nobody's could decide by the size, and there are too many to look at each; above
    the decorator it stands outside.
    """

    def checker(fn):
        @functools.wraps(fn)
        def look(*args):
            try:
                return fn(*args)
            except KeyError:
                raise TypeError from None

        return look

    with pytest.raises(ExportError, match="put the decorator of that wrapper above @optimize"):
        below(checker, rows).export(tmp_path / "f", X, V, sizes={"n": range(2, 300)})


@pytest.mark.parametrize("number", [0.5, array(np.float32(0.5))], ids=["float", "array"])
@pytest.mark.parametrize("fn", [either, like], ids=["either", "like"])
@each_checker
def test_numbers_that_are_annotated_for_both_pass(checker, fn, number):
    """`float | Float[Array, ""]` and `ScalarLike` take a number and what it is while traced."""
    np.testing.assert_allclose(below(checker, fn)(LINE, number), ROWS[:, 0] * 0.5)


@each_checker
def test_static_numbers_stay_numbers_inside(checker):
    """An `int` is static, and so is what `static=` names: the checker sees them as they are."""
    np.testing.assert_allclose(below(checker, power)(LINE, 2), ROWS[:, 0] ** 2, rtol=1e-6)
    got = below(checker, scaled, static="lr")(LINE, 0.5)
    np.testing.assert_allclose(got, ROWS[:, 0] * 0.5)


@pytest.mark.parametrize("pad", [None, {"n": "pow2"}], ids=["", "pad"])
@each_checker
def test_a_traced_float_below_a_checker_says_what_to_write(checker, pad):
    """The error is jitney's, names the argument, and has the checker's own as its cause; there is
    no warning about padding.
    """
    with pytest.raises(TraceError, match=r"'lr' is traced, and .* takes a `float`") as raised:
        below(checker, scaled, pad=pad)(LINE, 0.5)
    assert raised.value.code == "J274"
    assert 'float | Float[Array, ""]' in str(raised.value)
    assert not isinstance(raised.value.__cause__, jitney.errors.JitneyError)


def test_the_line_of_the_checker_is_named():
    """The message has the decorator as it is written, and its line."""

    @optimize
    @jaxtyped(typechecker=beartype)
    def f(x: Float[Array, "n"], lr: float):
        return x * lr

    line = f.__wrapped__.__wrapped__.__code__.co_firstlineno + 1
    with pytest.raises(TraceError) as raised:
        f(LINE, 0.5)
    place = f"`@jaxtyped(typechecker=beartype)` at test_type_checkers.py:{line}"
    assert place in str(raised.value)


@each_checker
def test_derivatives_name_the_checker_too(checker):
    """A gradient traces the number like a call does."""

    def loss(x: Float[Array, "n"], lr: float):
        return jnp.sum(x * lr)

    with pytest.raises(TraceError, match="'lr' is traced"):
        below(checker, loss).grad(LINE, 0.5)


@pytest.mark.parametrize("checker", [CHECKERS["jaxtyped"], beartype], ids=["jaxtyped", "beartype"])
def test_a_traced_number_that_is_passed_on_names_the_line(checker):
    """The function that the body calls is checked, and the body is not."""

    @checker
    def inner(x: Float[Array, "n"], step: float):
        return x * step

    @optimize
    def outer(x: Float[Array, "n"], lr: float):
        return inner(x, lr)

    with pytest.raises(TraceError, match=r"test_type_checkers.py:\d+ passes on a number") as raised:
        outer(LINE, 0.5)
    assert "static='lr'" in str(raised.value)


@pytest.mark.parametrize("checker", [CHECKERS["jaxtyped"], beartype], ids=["jaxtyped", "beartype"])
def test_a_result_that_is_annotated_float_says_what_to_write(checker):
    """What is returned from a trace is an array."""

    def total(x: Float[Array, "n"]) -> float:
        return jnp.sum(x)

    with pytest.raises(TraceError, match="the result is traced"):
        below(checker, total)(LINE)


@each_checker
def test_an_error_of_the_body_stays_its_own(checker):
    """Only what is raised around the body is a checker's."""

    def f(x: Float[Array, "n"], lr: float):
        raise LookupError("lr is a float")

    with pytest.raises(LookupError, match="lr is a float"):
        below(lambda fn: fn, f)(LINE, 0.5)


@each_checker
def test_a_wrong_call_is_refused_below_a_checker(checker):
    """By the contract, before anything is traced."""
    with pytest.raises(ContractError, match="axis 'd' has two sizes"):
        below(checker, rows)(X, array(np.zeros(4, np.float32)))
    with pytest.raises(ContractError, match="'k'"):
        below(checker, power)(LINE, "a")


def test_without_contracts_the_checker_below_refuses():
    """`contracts=False` turns off jitney's checks, and not those of others."""
    f = below(CHECKERS["jaxtyped"], rows, contracts=False)
    with pytest.raises(JaxtypingError):
        f(X, array(np.zeros(4, np.float32)))


# A checker above the decorator.


@each_checker
def test_a_checker_above_is_called_like_the_function(checker):
    """Results are those of the function, with options too."""
    np.testing.assert_allclose(checker(optimize(rows))(X, V), TANH, rtol=1e-5)
    np.testing.assert_allclose(checker(optimize(pad={"n": "pow2"})(mean))(X, V), TANH.mean(), 1e-5)


@pytest.mark.parametrize("checker", [CHECKERS["jaxtyped"], beartype], ids=["jaxtyped", "beartype"])
def test_a_checker_above_leaves_the_checks_to_jitney(checker):
    """Annotations say what the body sees, which under `vmap` is not what is passed; and a `float`
    takes an array.
    """
    np.testing.assert_allclose(checker(optimize(vmap="n")(of_row))(X, V), TANH, rtol=1e-5)
    got = checker(optimize(scaled))(LINE, array(np.float32(0.5)))
    np.testing.assert_allclose(got, ROWS[:, 0] * 0.5)
    with pytest.raises(ContractError, match="axis 'd' has two sizes"):
        checker(optimize(rows))(X, array(np.zeros(4, np.float32)))


def test_beartype_above_checks_where_the_contract_does_not():
    """A function that calls the program, as `@jaxtyped` makes one; methods too."""

    class Model:
        @beartype
        @optimize(contracts=False)
        def scaled(self, x: Float[Array, "n"], k: int = 2):
            return x * k

    f = beartype(optimize(contracts=False)(rows))
    np.testing.assert_array_equal(Model().scaled(jnp.ones(2)), [2, 2])
    program = type(optimize(rows))
    assert isinstance(inspect.unwrap(f, stop=lambda under: isinstance(under, program)), program)
    for wrong in (lambda: f(3), lambda: Model().scaled(jnp.ones(2), "a")):
        with pytest.raises(BeartypeCallHintParamViolation):
            wrong()


def test_a_checker_above_checks_what_jitney_does_not():
    """Under `contracts=False` a checker above has its work."""
    f = jaxtyped(typechecker=beartype)(optimize(contracts=False)(rows))
    with pytest.raises(JaxtypingError):
        f(X, array(np.zeros(4, np.float32)))


def test_beartype_above_gives_the_program():
    """The methods of a program are there, as beartype's hook of imports needs."""
    f = beartype(optimize(mean))
    assert isinstance(f, jitney.Program)
    np.testing.assert_allclose(f.grad(X, V)["w"], SLOPES.mean(0), rtol=1e-4)
    assert f == optimize(mean)


def test_a_wrapper_by_hand_is_what_its_call_is():
    """No attribute of a program that `functools.wraps` copies leads past the wrapper."""
    names = {"optimize": optimize, "functools": functools}
    exec(  # in a module without beartype
        "@optimize\ndef f(x):\n    return x\n"
        "@functools.wraps(f)\ndef doubled(x):\n    return 2 * f(x)",
        names,
    )
    np.testing.assert_allclose(names["doubled"].__call__(LINE), 2 * ROWS[:, 0])


def test_the_program_is_within_a_wrapper_of_another_checker():
    """jaxtyping and others make a function, whose `__wrapped__` is the program."""
    f = jaxtyped(typechecker=beartype)(optimize(mean))
    np.testing.assert_allclose(f.__wrapped__.grad(X, V)["w"], SLOPES.mean(0), rtol=1e-4)


def test_a_bound_method_calls_its_own_object():
    """What `__call__` of a program gives is bound as the program is."""

    class Net(eqx.Module):
        w: Float[Array, "d"]

        @beartype
        @optimize
        def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n"]:
            return jnp.tanh(x @ self.w)

        @optimize
        def method(self, x: Float[Array, "n d"]) -> Float[Array, "n"]:
            return jnp.tanh(x @ self.w)

    net = Net(V)
    for call in (net, net.method, net.method.__call__):
        np.testing.assert_allclose(call(X), TANH, rtol=1e-5)
    f = optimize(rows)
    np.testing.assert_allclose(f.__call__(X, V), TANH, rtol=1e-5)


# Classes whose constructors are checked.


@jaxtyped(typechecker=beartype)
@dataclasses.dataclass(frozen=True)
class Record:
    w: Float[Array, "d"]
    name: str
    gain: Float[Array, ""]


jax.tree_util.register_dataclass(Record, ["w", "gain"], ["name"])


class Pair(typing.NamedTuple):
    w: Float[Array, "d"]
    gain: Float[Array, ""]


Pair.__new__ = beartype(Pair.__new__)


class Plain:
    @beartype
    def __init__(self, w: Float[Array, "d"], name: str, gain: Float[Array, ""]):
        self.w, self.name, self.gain = w, name, gain


jax.tree_util.register_pytree_node(
    Plain,
    lambda it: ((it.gain, it.w), it.name),
    lambda name, parts: Plain(parts[1], name, parts[0]),
)
MADE = {
    "dataclass": Record(V, "r", array(np.float32(2.0))),
    "named tuple": Pair(V, array(np.float32(2.0))),
    "class": Plain(V, "r", array(np.float32(2.0))),
}
each_class = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


def by_record(x: Float[Array, "n d"], r: Record | Pair | Plain) -> Float[Array, "n"]:
    return jnp.tanh(x @ r.w) * r.gain


@pytest.mark.core("*-options0", "dataclass-options2", "class-options1")
@pytest.mark.parametrize("options", [OPTIONS[name] for name in ("none", "pad", "chunk", "verify")])
@each_class
def test_a_class_whose_constructor_checks_is_an_argument(made, options):
    """It is rebuilt from tracers alone, as `jax.jit` does it."""
    f = optimize(**options)(by_record)
    for _ in range(3):
        np.testing.assert_allclose(f(X, made), TANH * 2, rtol=1e-5)


@each_class
def test_a_class_whose_constructor_checks_is_a_result(made):
    """Later calls too, which a function that is written for them builds."""

    def twice(r: Record | Pair | Plain):
        return jax.tree.map(lambda part: part * 2, r)

    f = optimize(twice)
    for _ in range(4):
        got = f(made)
        assert type(got) is type(made)
        np.testing.assert_allclose(got.w, W * 2)
        np.testing.assert_allclose(got.gain, 4.0)


@each_class
def test_a_gradient_by_a_class_whose_constructor_checks(made):
    """As `jax.grad` gives it."""

    def loss(r: Record | Pair | Plain, x: Float[Array, "n d"]):
        return jnp.mean(jnp.tanh(x @ r.w)) * r.gain

    grad = optimize(loss).grad(made, X)["r"]
    np.testing.assert_allclose(grad.w, SLOPES.mean(0) * 2, rtol=1e-4)
    np.testing.assert_allclose(grad.gain, TANH.mean(), rtol=1e-5)


def test_a_gradient_that_has_none_where_the_class_takes_none_is_refused():
    """A leaf that is no array of floats has no derivative, and None stands in its place."""

    def loss(r: Record, x: Float[Array, "n d"]):
        return jnp.mean(x @ r.w)

    @jaxtyped(typechecker=beartype)
    @dataclasses.dataclass(frozen=True)
    class Counted:
        w: Float[Array, "d"]
        count: Int[Array, ""]

    jax.tree_util.register_dataclass(Counted, ["w", "count"], [])
    counted = Counted(V, array(np.int32(3)))
    loss.__annotations__["r"] = Counted
    with pytest.raises(DerivativeError, match="a class in 'r' does not take None"):
        optimize(loss).grad(counted, X)


# Hooks of imports.

SOURCE = """
import dataclasses
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from jitney import optimize

def helper(x: Float[Array, "n d"], w: Float[Array, "d"]) -> Float[Array, "n"]:
    return jnp.tanh(x @ w)

@optimize(pad={"n": "pow2"})
def mean(x: Float[Array, "n d"], w: Float[Array, "d"]) -> Float[Array, ""]:
    y: Float[Array, "n"] = helper(x, w)
    return jnp.mean(y)

@optimize(vmap="n")
def of_row(x: Float[Array, "d"], w: Float[Array, "d"]) -> Float[Array, ""]:
    return jnp.tanh(x @ w)

@optimize
def scaled(x: Float[Array, "n"], lr: float) -> Float[Array, "n"]:
    return x * lr

@optimize
def either(x: Float[Array, "n"], lr: float | Float[Array, ""]) -> Float[Array, "n"]:
    return x * lr

@dataclasses.dataclass(frozen=True)
class Record:
    w: Float[Array, "d"]
    gain: float | Float[Array, ""]

jax.tree_util.register_dataclass(Record, ["w", "gain"], [])

@optimize
def by_record(x: Float[Array, "n d"], r: Record) -> Record:
    return Record(r.w * jnp.sum(x), r.gain)

class Net(eqx.Module):
    w: Float[Array, "d"]
    gain: float = eqx.field(static=True)

    @optimize(chunk={"n": 2})
    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n"]:
        return jnp.tanh(x @ self.w) * self.gain
"""


@pytest.fixture(params=["jaxtyping", "beartype"])
def hooked(request, tmp_path, monkeypatch):
    """The module above, imported under a hook."""
    name = re.sub(r"\W", "_", request.node.name)
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    if request.param == "jaxtyping":
        with install_import_hook(name, "beartype.beartype"):
            yield importlib.import_module(name)
    else:
        beartype_package(name)
        yield importlib.import_module(name)
    sys.modules.pop(name)
    sys.path_importer_cache.pop(str(tmp_path), None)


@pytest.mark.core("beartype")
def test_options_under_a_hook(hooked):
    """Padding, mapping and chunks give NumPy's numbers, and the methods of programs are there."""
    for n in (5, 6):
        np.testing.assert_allclose(hooked.mean(X[:n], V), TANH[:n].mean(), rtol=1e-5)
    assert hooked.mean.stats.traces == 1
    np.testing.assert_allclose(hooked.mean.grad(X, V)["w"], SLOPES.mean(0), rtol=1e-4)
    np.testing.assert_allclose(hooked.of_row(X, V), TANH, rtol=1e-5)
    np.testing.assert_allclose(hooked.Net(V, 2.0)(X), TANH * 2, rtol=1e-5)


def test_a_dataclass_under_a_hook(hooked):
    """Its constructor is checked, and gets arrays and numbers."""
    record = hooked.Record(V, 0.5)
    for _ in range(3):
        got = hooked.by_record(X, record)
    np.testing.assert_allclose(got.w, W * ROWS.sum(), rtol=1e-5)
    assert got.gain == 0.5


def test_numbers_under_a_hook(hooked):
    """One that is annotated for both passes, and `float` passes or says what to write."""
    np.testing.assert_allclose(hooked.either(LINE, 0.5), ROWS[:, 0] * 0.5)
    if "beartype" in hooked.__name__:  # which stands above
        np.testing.assert_allclose(hooked.scaled(LINE, 0.5), ROWS[:, 0] * 0.5)
    else:
        with pytest.raises(TraceError, match=r"the type checker around it \(jaxtyping's\)"):
            hooked.scaled(LINE, 0.5)


def test_a_wrong_call_under_a_hook(hooked):
    """Someone refuses it."""
    with pytest.raises(ContractError):
        hooked.mean(X, array(np.zeros(4, np.float32)))
    with pytest.raises((ContractError, TypeError)):
        hooked.either(LINE, "a")
