"""Code that decides by a size: each way, at any depth, is found; or, where every size of the bucket
decides alike, it is not in the way.
"""

import collections
import functools
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jitney._axes import Refused, demand, run_padded
from jitney._axes import trace as trace_in_any_way

TABLE = {6: 1.0, 7: 2.0}


def decide_equal(x):
    return x * 2 if x.shape[0] == 6 else x


def decide_unequal(x):
    return x if x.shape[0] != 6 else x * 2


def decide_among(x):
    return x * 2 if x.shape[0] in (6, 7) else x


def decide_by_table(x):
    return x * TABLE.get(x.shape[0], 3.0)


def decide_by_parity(x):
    return x * 2 if x.shape[0] % 2 else x


def decide_by_order(x):
    return x * 2 if x.shape[0] >= 6 else x


def decide_by_shape(x):
    return x * 2 if x.shape == (6,) else x


def decide_by_length(x):
    return x * 2 if len(x) == 6 else x


def decide_by_text(x):
    return x * 2 if f"{x.shape[0]}" == "6" else x


def decide_by_repr(x):
    return x * 2 if repr(x.shape) == "(6,)" else x


def decide_by_set(x):
    return x * 2 if {x.shape[0]} & {6, 7} else x


def decide_by_type(x):
    return jnp.sin(x) if isinstance(x.shape[0], int) else jnp.cos(x)


def decide_by_type_of_number(x):
    return x * (2.0 if type(x.shape[0]) is int else 3.0)


def decide_and_catch(x):
    try:
        six = x.shape[0] == 6
    except Exception:  # noqa: BLE001
        six = False
    return x * 2 if six else x


@functools.lru_cache
def factor(n):
    return 2.0 if n == 6 else 1.0


def decide_by_cached_helper(x):
    return x * factor(x.shape[0])


def decide_by_derived_size(x):
    return x * 2 if x.shape[0] * 2 - 1 == 11 else x


def decide_by_other_array(x):
    return x * 2 if jnp.concatenate([x, x]).shape == (12,) else x


def decide_by_range(x):
    return sum(x[i] for i in range(x.shape[0])) * jnp.ones_like(x)


def decide_by_float(x):
    return x * (2.0 if float(x.shape[0]) == 6.0 else 1.0)


def decide_by_numpy(x):
    return x * np.sqrt(x.shape[0])


DECISIONS = [value for name, value in list(globals().items()) if name.startswith("decide_")]


BY_NUMBER = [
    decide_equal,
    decide_unequal,
    decide_by_order,
    decide_by_shape,
    decide_by_derived_size,
    decide_by_other_array,
]


class Layer(eqx.Module):
    """A module whose method decides."""

    fn: object = eqx.field(static=True)

    def __call__(self, x):
        return self.fn(x)


DEPTHS = {
    "body": lambda f: f,
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: lambda x: jax.vmap(f, in_axes=1, out_axes=1)(jnp.stack([x, x], 1))[:, 0],
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "cond": lambda f: lambda x: jax.lax.cond(x[0] > 0, f, lambda y: y, x),
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x) ** 2)),
    "checkpoint": jax.checkpoint,
    "module": Layer,
    "filter_jit": eqx.filter_jit,
}


trace = functools.partial(trace_in_any_way, examples=False)


def outcome(fn, n, low=5, high=8):
    """The padded result at size `n`, or the refusal."""
    ranges = {"d0": (low, high)}

    def flat(x):
        return [fn(x)]

    try:
        traced = trace(
            flat, lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], ranges
        )
        demand(traced.jaxpr, ranges)
    except Refused as refusal:
        return refusal
    x = np.full(high, np.nan, np.float32)
    x[:n] = np.arange(n) + 1
    return np.asarray(run_padded(traced.jaxpr, [x], {"d0": high}, {"d0": np.int32(n)})[0])[:n]


@pytest.mark.core("*-body", "decide_by_type_of_number-*")
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("decide", DECISIONS, ids=lambda f: f.__name__)
def test_no_decision_goes_unnoticed(decide, depth):
    """Each is refused, at each depth: its answer differs from one size of the bucket to the
    next.
    """
    factor.cache_clear()
    assert isinstance(outcome(DEPTHS[depth](decide), 6), Refused)


@pytest.mark.core("*-7")
@pytest.mark.parametrize("n", [7, 8])
@pytest.mark.parametrize(
    "decide",
    [
        decide_equal,
        decide_unequal,
        decide_by_order,
        decide_by_shape,
        decide_by_derived_size,
        decide_by_other_array,
    ],
)
def test_a_decision_that_all_sizes_of_the_bucket_share_is_kept(decide, n):
    """Sizes 7 to 8 are never 6: the symbol's bounds decide as each size would."""
    x = np.arange(n, dtype=np.float32) + 1
    np.testing.assert_array_equal(outcome(decide, n, 7, 8), decide(x))


def test_a_refusal_names_the_line():
    """And what is done there, so that it can be changed."""
    refusal = outcome(decide_equal, 6)
    assert refusal.place.startswith("test_dim_hooks.py:")
    assert refusal.place.endswith("(decide_equal)")
    assert refusal.what == "compares the size d0 with 6"


def test_two_axes_that_are_equal_at_some_sizes_are_not_equal():
    """`x.shape == y.shape` folds to False while the sizes are symbols; at n = m it is True."""
    ranges = {"d0": (5, 8), "d1": (5, 8)}

    def body(x, y):
        return [x + y if x.shape == y.shape else x]

    with pytest.raises(Refused, match="compares"):
        trace(
            body,
            lambda s: [
                jax.ShapeDtypeStruct((s["d0"],), np.float32),
                jax.ShapeDtypeStruct((s["d1"],), np.float32),
            ],
            ranges,
        )


def test_the_class_is_as_it_was_afterwards():
    """Also after a refusal: other users of symbolic sizes see JAX's own methods."""
    kind = type(export.symbolic_shape("a")[0])
    before = {
        name: kind.__dict__.get(name)
        for name in (
            "__eq__",
            "__ne__",
            "__bool__",
            "__hash__",
            "__str__",
            "__repr__",
            "__format__",
        )
    }
    outcome(decide_equal, 6)
    outcome(jnp.sin, 6)
    assert before == {name: kind.__dict__.get(name) for name in before}


def test_other_threads_are_not_watched():
    """Somebody else's symbolic sizes compare as JAX has it while a trace here is under way."""
    (size,) = export.symbolic_shape("a")
    answers = []

    def body(x):
        thread = threading.Thread(target=lambda: answers.append((size == 3, bool(size), str(size))))
        thread.start()
        thread.join()
        return x * 2

    np.testing.assert_array_equal(outcome(body, 6), (np.arange(6) + 1) * 2)
    assert answers == [(False, True, "a")] * 3


def test_what_jax_counts_with_the_standard_library_is_not_blamed_on_that():
    """Sizes that do not fit are counted for the message; the line is that of the user's `vmap`, and
    the message JAX's.
    """
    avals = lambda sizes: [
        jax.ShapeDtypeStruct((sizes[name],), np.float32) for name in ("d0", "d1")
    ]
    with pytest.raises(Refused) as refused:
        trace(
            lambda x, y: jax.vmap(lambda a, b: a + b)(x, y),
            avals,
            {"d0": (5, 8), "d1": (5, 8)},
            {"d0": 5, "d1": 5},
        )
    assert refused.value.place.startswith("test_dim_hooks.py")
    assert "vmap got inconsistent sizes" in refused.value.what


def test_what_the_user_counts_with_the_standard_library_is_the_users():
    """`Counter` hashes the size for whoever called it."""
    with pytest.raises(Refused) as refused:
        trace(
            lambda x: x * collections.Counter([x.shape[0], 3])[3],
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
            {"d0": (5, 8)},
        )
    assert refused.value.place.startswith("test_dim_hooks.py")
    assert refused.value.what == "looks the size d0 up in a set or a dict"
