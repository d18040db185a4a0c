"""Large arrays that a function captures are arguments of its program; the results are those of
`jax.jit`.
"""

import gc
import weakref
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._program.runners import captured_calls
from tests._arrays import array
from tests._monitor import listening

# 1.4 MB, above the limit of a megabyte; whole numbers, so that sums are exact
SIDE = 600
GLOBAL = (np.arange(SIDE * SIDE, dtype=np.float32) % 7 - 2).reshape(SIDE, SIDE)
ON_DEVICE = array(GLOBAL)
X = array(np.float32(3))


def lines(f, *args):
    """The lines of a plan about captured arrays."""
    return [line for line in f.plan(*args).lines if line.name == "captured array"]


def text_of(f, *args):
    """The program that calls run."""
    return f.ahead(args, {}).as_text()


def is_argument(f, *args):
    """Whether the compiled program has a parameter of the captured array's shape."""
    return f"f32[{SIDE},{SIDE}]" in text_of(f, *args).partition("ENTRY")[2].partition(" ROOT")[0]


class Layer(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return (self.weight * x).sum(0)


class Plain:
    def __init__(self, weight):
        self.weights = {"in": [weight]}


class Shared:
    """Its objects share an array."""

    weight = GLOBAL

    def call(self, x):
        return (self.weight * x).sum(0)

    @classmethod
    def of_class(cls, x):
        return (cls.weight * x).sum(0)

    @staticmethod
    def by_name(x):
        return (Shared.weight * x).sum(0)


class Derived(Shared):
    """Inherits it."""


def of_closure(weight):
    return lambda x: (weight * x).sum(0)


def of_default(x, weight=ON_DEVICE):
    return (weight * x).sum(0)


def of_global(x):
    return (ON_DEVICE * x).sum(0)


def of_numpy(x):
    return (GLOBAL * x).sum(0)


def of_inner(x):
    return jax.jit(lambda y: jax.jit(of_global)(y) + 1)(x) - 1


def of_object(held):
    return lambda x: (held.weights["in"][0] * x).sum(0)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (of_closure(ON_DEVICE), "`weight`"),
        (of_global, "`ON_DEVICE`"),
        (of_numpy, "`GLOBAL`"),
        (of_inner, "`ON_DEVICE`"),
        (of_object(Plain(ON_DEVICE)), "`held.weights['in'][0]`"),
        (of_object(Plain(GLOBAL)), "`held.weights['in'][0]`"),
        (of_closure(GLOBAL), "`weight`"),
        (Shared().call, "`Shared.weight`"),
        (Derived().call, "`Shared.weight`"),
        (Shared.of_class, "`Shared.weight`"),
        (Shared.by_name, "`Shared.weight`"),
    ],
)
def test_captured_array_is_an_argument_of_the_program(fn, name):
    """Wherever the function has it; the plan names it."""
    f = optimize(cache=False)(fn)
    np.testing.assert_array_equal(f(X), (GLOBAL * 3).sum(0))
    (line,) = lines(f, X)
    assert line.taken
    assert line.why.startswith(f"{name} (float32[600, 600], 1.373 MiB) is an argument")
    assert is_argument(f, X)
    assert f.stats.traces == 1


def test_view_that_is_written_through_its_base_is_that_of_the_trace():
    """Each way that NumPy writes an array in place: a known call has the numbers of its trace."""
    writes = {
        "base": lambda base: base.__setitem__(slice(0, SIDE), 7),
        "transposed": lambda base: base.reshape(SIDE, SIDE).T[0].__iadd__(5),
        "bytes": lambda base: base.view(np.uint8)[-8:].fill(0),
    }
    for name, write in writes.items():
        base = GLOBAL.ravel().copy()
        fn = of_closure(base.reshape(SIDE, SIDE)[::-1])
        f, plain = optimize(cache=False)(fn), jax.jit(fn)
        np.testing.assert_array_equal(f(X), plain(X))
        write(base)
        np.testing.assert_array_equal(f(X), (GLOBAL * 3).sum(0), err_msg=name)
        np.testing.assert_array_equal(f(X), plain(X), err_msg=name)
        jax.clear_caches()
        now = (base.reshape(SIDE, SIDE) * 3).sum(0)
        np.testing.assert_array_equal(f(X), now, err_msg=name)
        np.testing.assert_array_equal(plain(X), now, err_msg=name)


def test_default_of_an_argument_is_an_argument():
    """It was one before: nothing is captured."""
    f = optimize(cache=False)(of_default)
    np.testing.assert_array_equal(f(X), (GLOBAL * 3).sum(0))
    assert not lines(f, X)


def test_array_below_a_megabyte_is_a_constant():
    """As with `jax.jit`."""
    small = ON_DEVICE[:200]
    f = optimize(cache=False)(lambda x: (small * x).sum(0))
    np.testing.assert_array_equal(f(X), (GLOBAL[:200] * 3).sum(0))
    assert not lines(f, X)


def test_array_inside_of_a_loop_is_an_argument():
    """JAX makes it an operand of the loop."""

    def powers(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: (ON_DEVICE * y).mean(), x)

    f = optimize(cache=False)(powers)
    np.testing.assert_allclose(f(X), jax.jit(powers)(X), rtol=1e-5)
    assert lines(f, X)[0].taken


def test_compiled_function_inside_of_a_loop_keeps_its_constant():
    """The plan says what to do."""

    def powers(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: jax.jit(lambda z: (ON_DEVICE * z).mean())(y), x)

    f = optimize(cache=False)(powers)
    np.testing.assert_allclose(f(X), jax.jit(powers)(X), rtol=1e-5)
    (line,) = lines(f, X)
    assert not line.taken
    assert "is a constant of the program" in line.why
    assert line.why.endswith("pass it as an argument")


def test_value_that_python_reads_is_that_of_the_trace():
    """`float(np.asarray(W)[0, 0])` leaves no trace, so another array is traced anew."""

    def scaled(weight):
        def fn(x):
            return weight.sum() * x * (2 if float(np.asarray(weight)[0, 0]) > 0 else 1)

        return fn

    for weight in (GLOBAL, -GLOBAL, GLOBAL + 3):
        expected = weight.sum() * 3 * (2 if weight[0, 0] > 0 else 1)
        for held in (weight, array(weight)):
            f = optimize(cache=False)(scaled(held))
            np.testing.assert_array_equal(f(X), expected)


def test_array_that_is_changed_in_place_is_that_of_the_trace():
    """As with `jax.jit`: a known call has the old numbers, a call of another shape the new ones."""
    weight = np.ones((SIDE, SIDE), np.float32)
    fn = of_closure(weight)
    f, plain = optimize(cache=False)(fn), jax.jit(fn)
    wide = array(np.ones((2, SIDE, SIDE), np.float32))
    f(X), plain(X)
    weight[:] = 7
    np.testing.assert_array_equal(f(X), plain(X))
    np.testing.assert_array_equal(f(X), np.full(SIDE, SIDE * 3.0))
    np.testing.assert_array_equal(f(wide), plain(wide))
    np.testing.assert_array_equal(f(wide), np.full((SIDE, SIDE), 14.0))
    weight[:] = 1
    np.testing.assert_array_equal(f(wide), plain(wide))


def test_array_that_another_thread_changes_is_that_of_some_moment(monkeypatch):
    """Changed after each copy, before the program is built: an internal exception came out."""
    weight = np.ones((SIDE, SIDE), np.float32)
    build = captured_calls.taking_constants

    def meanwhile(*args):
        weight[:] += 1
        return build(*args)

    monkeypatch.setattr(captured_calls, "taking_constants", meanwhile)
    f = optimize(cache=False)(of_closure(weight))
    np.testing.assert_array_equal(f(X), np.full(SIDE, SIDE * 3.0))
    assert weight[0, 0] == 2
    np.testing.assert_array_equal(f(X), np.full(SIDE, SIDE * 3.0))


def test_copy_is_there_before_the_caller_overwrites_the_array(monkeypatch):
    """JAX copies 36 MB in a thread of its own, which read numbers that came later."""
    weight = np.ones((3000, 3000), np.float32)
    build = captured_calls.taking_constants

    def overwrite(*args):
        weight[:] = 7
        return build(*args)

    monkeypatch.setattr(captured_calls, "taking_constants", overwrite)
    f = optimize(cache=False)(lambda x: x + weight[0, 0] * weight[-1, -1] + jnp.max(weight))
    assert f(X) == 5


def test_array_that_is_donated_later_keeps_its_numbers():
    """The program holds a copy, as a constant is one."""
    weight = array(GLOBAL + 0)
    f = optimize(cache=False)(of_closure(weight))
    before = np.asarray(f(X))
    jax.jit(lambda w: w + 1, donate_argnums=0)(weight).block_until_ready()
    assert weight.is_deleted()
    np.testing.assert_array_equal(f(X), before)


def test_name_that_is_bound_anew_is_read_by_a_new_trace_only():
    """As with `jax.jit`."""
    weight = GLOBAL

    def fn(x):
        return (weight * x).sum()

    f = optimize(cache=False)(fn)
    f(X)
    weight = GLOBAL + 1
    np.testing.assert_array_equal(f(X), GLOBAL.sum() * 3)
    rows = array(np.full(SIDE, 3, np.float32))
    np.testing.assert_array_equal(f(rows), weight.sum() * 3)


def test_traces_that_jax_has_dropped_are_captured_anew():
    """After `jax.clear_caches` an array that was changed in place has its new numbers."""
    weight = np.ones((SIDE, SIDE), np.float32)
    f = optimize(cache=False)(of_closure(weight))
    f(X)
    weight[:] = 2
    jax.clear_caches()
    np.testing.assert_array_equal(f(X), np.full(SIDE, SIDE * 6.0))
    assert lines(f, X)[0].taken


def test_one_program_serves_other_arrays_of_a_cache():
    """The compiled program holds no values: XLA's cache finds it for another array."""
    programs = [optimize(of_closure(array(GLOBAL + i))) for i in range(3)]
    with listening() as events:
        results = [f(X) for f in programs]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, ((GLOBAL + i) * 3).sum(0))
    assert len({text_of(f, X) for f in programs}) == 1
    assert events is not None


def test_program_compiled_ahead_is_found():
    """Its arguments are the same."""
    f = optimize(cache=False)(of_closure(ON_DEVICE))
    f.compile(X)
    compiled = f.stats.compiles
    f(X)
    assert f.stats.compiles == compiled == 1
    assert f.stats.traces == 1


def test_captured_array_with_run_time_checks():
    """The error comes, and the array is an argument."""

    def checked(x):
        x = eqx.error_if(x, x < 0, "below zero")
        return (ON_DEVICE * x).sum(0)

    f = optimize(cache=False)(checked)
    np.testing.assert_array_equal(f(X), (GLOBAL * 3).sum(0))
    with pytest.raises(RuntimeError, match="below zero"):
        f(-X)
    assert lines(f, X)[0].taken


@pytest.mark.core("{'pad'*", "{'vmap'*", "{'donate'*", "{'verify'*")
@pytest.mark.parametrize(
    "options",
    [
        {"pad": {"n": "pow2"}},
        {"vmap": "batch"},
        {"chunk": {"n": 2}},
        {"precision": "f64"},
        {"compiler": "fast"},
        {"donate": "y"},
        {"debug_nans": True},
        {"verify": True},
        {"remat": True},
    ],
    ids=str,
)
def test_captured_array_with_an_option(options):
    """The results are those of NumPy, for several shapes."""

    @partial(optimize, cache=False, **options)
    def f(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return y * 2 + ON_DEVICE[0, 0].astype(y.dtype) + (ON_DEVICE.sum() * 0).astype(y.dtype)

    for size in (5, 3, 5):
        y = np.arange(size, dtype=np.float32)
        given = np.stack([y, y + 1]) if "vmap" in options else y
        np.testing.assert_allclose(f(array(given)), given * 2 - 2, rtol=1e-5)
    assert lines(f, array(given))[0].taken


def test_captured_array_under_an_outer_transform():
    """The derivative, a mapped call and an outer `jit` have it too."""
    f = optimize(cache=False)(of_closure(ON_DEVICE))
    columns = GLOBAL.sum(0)
    np.testing.assert_array_equal(f(X), columns * 3)
    rows = array(np.float32([1, 2]))
    np.testing.assert_array_equal(jax.jit(f)(X), columns * 3)
    np.testing.assert_array_equal(jax.vmap(f)(rows)[1], columns * 2)
    np.testing.assert_array_equal(jax.jacfwd(f)(X), columns)
    np.testing.assert_array_equal(f.jacobian(X)["x"], columns)


def test_captured_array_of_another_dtype():
    """bfloat16 has the same bits in the copy."""
    for dtype in (jnp.bfloat16, np.int8, np.int32, np.complex64, bool):
        weight = (np.arange(SIDE * SIDE * 2) % 2).reshape(2, SIDE, SIDE).astype(dtype)
        weight = np.concatenate([weight, weight], axis=0)
        held = array(weight)
        f = optimize(cache=False)(lambda x, held=held: held[::2] if x is None else held)
        np.testing.assert_array_equal(f(None), weight[::2])


def test_array_that_is_the_result():
    """A result of its own, which a later call does not share."""
    f = optimize(cache=False)(lambda x: (ON_DEVICE, x))
    first, second = f(X)[0], f(X)[0]
    np.testing.assert_array_equal(first, GLOBAL)
    jax.jit(lambda w: w + 1, donate_argnums=0)(first)
    np.testing.assert_array_equal(second, GLOBAL)
    np.testing.assert_array_equal(f(X)[0], GLOBAL)


def test_captured_array_is_freed_with_the_function():
    """No cycle keeps it or its copy."""

    def call():
        held = np.ones((SIDE, SIDE), np.float32)
        optimize(cache=False)(of_closure(held))(X)
        return weakref.ref(held)

    gone = call()
    gc.collect()
    assert gone() is None
