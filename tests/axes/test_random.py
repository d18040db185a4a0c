"""Draws of random numbers along an axis that is cut or padded: to the bit those of JAX at exact
size.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import random as ciphers

from jitney._axes import Refused, demand, run_chunked, run_padded, trace
from jitney._axes.interpreter import PaddedInterpreter
from jitney._axes.rules import RULES
from jitney._jax.equinox_checks import Insides
from jitney._jax.programs.jaxprs import draws_jointly, equations
from tests.axes import _cases as cases
from tests.axes.test_chunked import planned

KEYS = jax.random.wrap_key_data(np.uint32([[0, 3], [0, 4]]))
SHAPES = {"n": lambda n: (n,), "n 3": lambda n: (n, 3), "2 n": lambda n: (2, n)}


def draws(shape, dtype):
    """Numbers of each of two keys, and keys of one."""

    def body(x):
        at = shape(x.shape[0])
        two = jax.vmap(lambda key: jax.random.bits(key, at, dtype), out_axes=len(at))(KEYS)
        return [two, jax.random.key_data(jax.random.split(KEYS[1], at))]

    return cases.Case("draws", body, cases.V)


@pytest.mark.core("n 3-uint32")
@pytest.mark.parametrize(
    ("name", "dtype"), [("n", np.uint8), ("n 3", np.uint32), ("2 n", np.uint64)]
)
def test_draws_are_those_of_the_whole(name, dtype):
    """In chunks of five of twelve, and of nine in a bucket of sixteen."""
    with jax.enable_x64(dtype is np.uint64):
        case = draws(SHAPES[name], dtype)
        axis = name.split().index("n")
        plain = jax.jit(case.flat)
        want = plain(np.zeros(12, np.float32))
        passes = planned(case, 12)
        got = jax.jit(lambda x: run_chunked(passes, [x], 12, 5))(np.zeros(12, np.float32))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
        ranges = {"d0": (9, 16)}
        program = trace(case.flat, lambda sizes: case.avals(sizes["d0"]), ranges).jaxpr
        demand(program, ranges)
        padded = jax.jit(lambda n, x: run_padded(program, [x], {"d0": 16}, {"d0": n}))(
            np.int32(9), np.zeros(16, np.float32)
        )
        for a, b in zip(padded, plain(np.zeros(9, np.float32)), strict=True):
            np.testing.assert_array_equal(np.take(np.asarray(a), np.arange(9), axis), b)


@pytest.mark.rest
def test_elements_are_counted_beyond_32_bits():
    """What the cipher makes of the numbers of elements far behind, counted by Python."""
    far, wide = 2**31 - 7, 12_345
    program = trace(
        lambda x: [jax.random.bits(jax.random.key(5), (x.shape[0], wide))],
        lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
        {"d0": (4, 4)},
    ).jaxpr
    walk = PaddedInterpreter({"d0": 4}, {"d0": 4}, RULES, {"d0": 2**31 - 1}, {"d0": np.int32(far)})
    (got,) = walk.run(program, [np.zeros(4, np.float32)])
    counts = [(far + i) * wide + j for i in range(4) for j in range(wide)]
    words = [
        np.array(each, np.uint32)
        for each in zip(*((count >> 32, count & 0xFFFFFFFF) for count in counts), strict=True)
    ]
    high, low = ciphers.threefry2x32_p.bind(
        *(jnp.full(len(counts), k) for k in jax.random.key_data(jax.random.key(5))), *words
    )
    np.testing.assert_array_equal(got.reshape(-1), high ^ low)


def test_one_key_is_not_repeated_for_each_element():
    """The cipher of a chunk reads the halves of the key as two numbers, as in JAX: its loop carries
    the words of the draws alone.
    """

    def body(x):
        return [jax.random.normal(jax.random.key(3), x.shape)]

    passes = planned(cases.Case("draws", body, cases.V), 12)
    program = jax.make_jaxpr(lambda x: run_chunked(passes, [x], 12, 5))(np.zeros(12, np.float32))
    ciphered = [eqn for eqn in equations(program) if eqn.primitive.name == "threefry2x32"]
    assert ciphered
    for eqn in ciphered:
        assert [var.aval.ndim for var in eqn.invars] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "options", [{"jax_threefry_partitionable": False}, {"jax_default_prng_impl": "rbg"}], ids=str
)
def test_other_generators_are_refused(options):
    """They draw by how many numbers there are. Where each element has a key of its own it is alone,
    but with `rbg`, which JAX maps by drawing for all keys at once.
    """
    was = {name: getattr(jax.config, name) for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        with pytest.raises(
            Refused, match="from a generator whose draws depend on how many there are"
        ):
            planned(
                cases.Case(
                    "draws", lambda x: jax.random.normal(jax.random.key(0), x.shape), cases.V
                ),
                9,
            )
        own = [(("n", *jax.random.key_data(jax.random.key(0)).shape), np.uint32)]
        case = cases.Case(
            "own",
            lambda k: jax.vmap(lambda k: jax.random.normal(jax.random.wrap_key_data(k)))(k),
            own,
        )
        if options.get("jax_default_prng_impl") == "rbg":
            with pytest.raises(Refused, match="draws for all its keys at once"):
                planned(case, 9)
        else:
            planned(case, 9)
    finally:
        for name, value in was.items():
            jax.config.update(name, value)


OWN = {
    "draw": lambda key: jax.random.normal(key, (2,)),
    "split": lambda key: jax.random.key_data(jax.random.split(key)),
    "fold": lambda key: jax.random.key_data(jax.random.fold_in(key, 3)),
}
# Pairs for which `jax.vmap` is not the function of each key: all have the first element's key.
OF_THE_FIRST = {("rbg", "draw")} | {("unsafe_rbg", name) for name in OWN}


@pytest.mark.core("draw-rbg")
@pytest.mark.parametrize("cipher", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", OWN)
def test_keys_of_its_own_for_each_element(name, cipher):
    """In chunks of four of nine, the numbers of `jax.vmap` over all nine, or refused."""
    words = np.asarray(jax.random.key_data(jax.random.key(0, impl=cipher))).shape[0]

    def body(keys):
        return jax.vmap(lambda key: OWN[name](jax.random.wrap_key_data(key, impl=cipher)))(keys)

    case = cases.Case("own", body, [(("n", words), np.uint32)])
    keys = np.arange(9 * words, dtype=np.uint32).reshape(9, words)
    if (cipher, name) in OF_THE_FIRST:
        with pytest.raises(Refused, match="draws for all its keys at once"):
            planned(case, 9)
        return
    passes = planned(case, 9)
    (got,) = jax.jit(lambda x: run_chunked(passes, [x], 9, 4))(keys)
    np.testing.assert_array_equal(got, jax.jit(body)(keys))


@pytest.mark.rest
def test_what_is_counted_along_a_multiple_of_the_axis_is_that_of_the_whole():
    """A chunk of n elements starts at twice so many of 2 n."""

    def body(x):
        def turn(c, _):
            return c, (x.reshape(-1) + jnp.arange(2 * x.shape[0], dtype=x.dtype)).reshape(-1, 2)

        return jax.lax.scan(turn, 0.0, None, length=2)[1] + jax.random.normal(
            KEYS[0], (2 * x.shape[0],)
        ).reshape(-1, 2)

    case = cases.Case("counted", body, [(("n", 2), np.float32)])
    x = np.zeros((9, 2), np.float32)
    (got,) = jax.jit(lambda x: run_chunked(planned(case, 9), [x], 9, 4))(x)
    np.testing.assert_allclose(got, jax.jit(body)(x), rtol=1e-6, atol=1e-6)


def test_what_is_of_another_length_inside_a_loop_is_refused_in_chunks():
    """A chunk of four has no three elements of n - 1."""

    def body(x):
        return (
            jax.lax.scan(
                lambda c, _: (c + jnp.sum(jnp.ones(x.shape[0] - 1)), None), 0.0, None, length=2
            )[0]
            + x.sum()
        )

    with pytest.raises(
        Refused, match=r"makes an array with d0 - 1 elements along it inside `jax.lax.scan`"
    ):
        planned(cases.Case("odd", body, cases.V), 9)


@pytest.mark.parametrize(
    "make",
    [
        lambda words, key: jax.random.split(key),
        lambda words, key: jax.random.fold_in(key, words[0]),
    ],
)
def test_keys_that_are_made_from_unsafe_ones_are_refused(make):
    """`unsafe_rbg` makes those of a map together; `rbg` by a cipher, each alone."""

    def body(words, impl):
        keys = jax.vmap(lambda k: make(k, jax.random.wrap_key_data(k, impl=impl)))(words)
        return jax.random.key_data(keys)

    shapes = [(("n", 4), np.uint32)]
    planned(cases.Case("rbg", lambda words: body(words, "rbg"), shapes), 9)
    with pytest.raises(Refused, match="draws for all its keys at once"):
        planned(cases.Case("unsafe", lambda words: body(words, "unsafe_rbg"), shapes), 9)


@pytest.mark.rest
@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_what_is_called_joint_depends_on_the_keys_beside_it(impl):
    """And what is not, does not: rows of a map over six keys, and over the last three of them."""
    keys = jax.random.split(jax.random.key(7, impl=impl), 6)
    makes = {
        "random_bits": lambda key, i: jax.random.bits(key, (2,)),
        "random_split": lambda key, i: jax.random.key_data(jax.random.split(key)),
        "random_fold_in": lambda key, i: jax.random.key_data(jax.random.fold_in(key, i)),
    }
    rows = np.arange(6, dtype=np.uint32)
    for name, make in makes.items():
        whole, part = jax.vmap(make)(keys, rows), jax.vmap(make)(keys[3:], rows[3:])
        program = jax.make_jaxpr(jax.vmap(make))(keys, rows)
        joint = any(map(draws_jointly, Insides().equations(program)))
        assert joint is not bool(jnp.all(whole[3:] == part)), name
