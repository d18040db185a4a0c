"""What is said of programs that were recorded: the changes that are known to save, and none for
what is well.
"""

import contextlib
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import optimize
from jitney._command import launch
from jitney._command.changes import changes
from jitney._command.jax_log import parse_compiling, parse_explanation, read_events
from jitney._command.run_report import report
from tests.command._scripts import jax_explains

KEPT = {
    "jax_compilation_cache_dir": "/some/folder",
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}


@contextlib.contextmanager
def recorded():
    """What happens inside; what was asked of JAX is given back."""
    before = jax.config.jax_explain_cache_misses
    recording = launch.Recording()
    recording.listen()
    try:
        yield recording
    finally:
        recording.stop()
        jax.config.update("jax_explain_cache_misses", before)


def told(recording, **settings):
    """The programs and the changes."""
    seen = read_events(recording.events, recording.began)
    return seen, changes(seen.compiled, {**KEPT, **settings})


def rows(*shape):
    return np.ones(shape, np.float32)


@jax_explains
def test_programs_are_read_with_shapes_causes_and_lines():
    """Of a plain function: what JAX says of each."""

    @jax.jit
    def read(x, y):
        return jnp.sum(x) * y

    with recorded() as recording:
        for n in (3, 4):
            read(rows(n), rows(2))
    seen, _ = told(recording)
    first, second = (each for each in seen.compiled if each.name == "read")
    assert first.shapes == ("float32[3]", "float32[2]")
    assert (first.cause.why, second.cause.why) == ("first call", "other shapes or types")
    assert second.cause.details == ("x, now f32[4] and before f32[3]",)
    assert first.place.file == first.cause.file == __file__
    assert 0 < first.seconds < 60
    assert first.key
    assert first.key != second.key


@pytest.mark.rest
@jax_explains
def test_sizes_that_change_are_named_with_the_line_to_write():
    """Nine sizes in three buckets: axes that are equal in all calls have one name, and those that
    never change their size.
    """

    @jax.jit
    def grow(x, y, z):
        return (x * y) @ z

    with recorded() as recording:
        for n in (5, 6, 7, 9, 10, 11, 12, 17, 18):
            grow(rows(n), rows(n), rows(n, 3))
    _, found = told(recording)
    (change,) = [each for each in found if "grow" in each.what]
    assert "9 sizes (n: 9 sizes from 5 to 18)" in change.what
    assert "share 3 buckets" in change.what
    assert '@jitney.optimize(pad={"n": "pow2"})' in change.write
    assert 'x: Float[Array, "n"], y: Float[Array, "n"], z: Float[Array, "n 3"]' in change.write
    assert change.at_most


def test_the_line_to_write_saves_what_it_says():
    """The function with the line that was written for it: three programs, and the same numbers."""
    from jaxtyping import Array, Float

    def grow(x: Float[Array, "n"], z: Float[Array, "n 3"]):
        return x @ z

    padded = optimize(pad={"n": "pow2"})(grow)
    for n in (5, 6, 7, 9, 10, 11, 12, 17, 18):
        np.testing.assert_allclose(padded(rows(n), rows(n, 3)), np.full(3, n), rtol=1e-6)
    assert padded.stats.compiles + padded.stats.persistent_hits == 3


@jax_explains
def test_axes_are_named_as_the_annotations_name_them():
    """Those of a parameter without an annotation have a name of their own, unless they are equal
    to a named one.
    """
    from jaxtyping import Array, Float

    @jax.jit
    def misfit(t: Float[Array, "points"], y: Float[Array, "points 3"], w, other):
        return (t * w) @ y, other * 2

    def given(n, k):
        return rows(n), rows(n, 3), rows(n), rows(k)

    with recorded() as recording:
        for n, k in ((5, 5), (6, 7), (7, 7), (8, 9)):
            misfit(*given(n, k))
    _, found = told(recording)
    (change,) = [each for each in found if "misfit" in each.what]
    assert "(points: 5, 6, 7, 8; n: 5, 7, 9)" in change.what
    assert 'pad={"points": "pow2", "n": "pow2"}' in change.write
    assert 't: Float[Array, "points"], y: Float[Array, "points 3"]' in change.write
    assert 'w: Float[Array, "points"], other: Float[Array, "n"]' in change.write


@pytest.mark.rest
@jax_explains
def test_axes_under_a_transform_are_not_named_by_the_annotations():
    """The arrays of a mapped function have one dimension more than its parameters."""
    from jaxtyping import Array, Float

    def mapped(x: Float[Array, "points"]):
        return x * 2

    compiled = jax.jit(jax.vmap(mapped))
    with recorded() as recording:
        for n in (5, 6, 7):
            compiled(rows(2, n))
    _, found = told(recording)
    (change,) = [each for each in found if "mapped" in each.what]
    assert 'pad={"n": "pow2"}' in change.write


@pytest.mark.rest
@jax_explains
def test_two_axes_that_change_apart_have_two_names():
    """And arrays in a dict are no annotated arguments, so no annotation is written."""

    @jax.jit
    def wide(x):
        return x * 2

    @jax.jit
    def inside(p):
        return p["a"] * 3

    with recorded() as recording:
        for n, k in ((5, 3), (6, 3), (7, 3), (7, 4)):
            wide(rows(n, k))
            inside({"a": rows(n)})
    _, found = told(recording)
    change = next(each for each in found if each.what.startswith("wide "))
    assert 'pad={"n": "pow2", "m": "pow2"}' in change.write
    assert 'x: Float[Array, "n m"]' in change.write
    other = next(each for each in found if each.what.startswith("inside "))
    assert "Array, " not in other.write


@pytest.mark.rest
def test_what_another_transform_has_changed_gets_no_annotation():
    """The parameters of a function under `vmap` are not the arrays that are compiled."""

    def row(x):
        return x * 2.125

    rowwise = jax.jit(jax.vmap(row))
    with recorded() as recording:
        for n in (5, 6, 7):
            rowwise(rows(n, 2))
    _, found = told(recording)
    (change,) = [each for each in found if "sizes" in each.what]
    assert "Array, " not in change.write
    assert 'pad={"n": "pow2"}' in change.write


@jax_explains
def test_a_function_that_is_made_anew_is_found_by_its_program():
    """Four times the same program: three were for nothing. One that closes over another number is
    another program.
    """
    with recorded() as recording:
        for _ in range(4):
            jax.jit(lambda x: jnp.cos(x) * 1.5)(rows(3))
        for k in range(4):
            jax.jit(lambda x, k=k: jnp.sin(x) * (k + 0.5))(rows(3))
    seen, found = told(recording)
    anew = [each for each in found if "created again" in each.what]
    assert len(anew) == 1
    assert "3 times" in anew[0].what
    lambdas = [each for each in seen.compiled if each.name == "<lambda>"][1:4]
    assert anew[0].seconds == pytest.approx(sum(each.seconds for each in lambdas))


@pytest.mark.rest
def test_single_operations_outside_of_jit_are_found():
    """By the function that calls them; inside of `jit` they are part of a program."""

    def small(x):
        return jnp.tanh(jnp.sinh(jnp.cosh(jnp.arctan(jnp.log1p(x)))))

    with recorded() as recording:
        small(rows(23))
        jax.jit(small)(rows(24))
    _, found = told(recording)
    (change,) = [each for each in found if "operations of JAX" in each.what]
    assert "small" in change.where
    assert change.what.startswith("5 programs")
    assert "log1p" in change.what or "and 2 more" in change.what


@pytest.mark.rest
def test_functions_of_ones_own_under_a_gradient_are_no_operations():
    """Which JAX does not explain there; their sizes are told, of what goes forward and back."""

    @jax.jit
    def misfit(w, x):
        return jnp.sum((x * w) ** 2)

    w, data = jnp.ones(()), [jnp.ones(n) for n in range(2, 9)]
    with recorded() as recording:
        for x in data:
            jax.grad(misfit)(w, x)
    seen, found = told(recording)
    assert sum(each.name == "misfit" for each in seen.compiled) >= 7
    assert {change.what.partition("(")[0] for change in found} == {
        "misfit was compiled for 7 sizes "
    }
    assert all('pad={"n": "pow2"}' in change.write for change in found)


@pytest.mark.rest
@jax_explains
def test_functions_that_share_a_name_with_an_operation_are_no_operations():
    """What JAX explains is the user's, and so is all of that name."""
    with recorded() as recording:
        for name in ("add", "multiply", "tanh", "sin", "cos"):
            body = lambda x: x * 2
            body.__name__ = name
            jax.jit(body)(rows(29))
    _, found = told(recording)
    assert not [each for each in found if "operations of JAX" in each.what]


@pytest.mark.core("optimize")
@pytest.mark.parametrize(
    "jitted",
    [jax.jit, optimize, lambda f: jax.jit(jax.grad(lambda x: jnp.sum(f(x))))],
    ids=["jit", "optimize", "grad"],
)
def test_a_program_that_is_well_has_no_change(jitted):
    """Two shapes, warm calls, static values: nothing is known that would save."""

    def body(x):
        return jnp.sin(x) * 2

    f = jitted(body)
    g = functools.partial(jax.jit, static_argnames="n")(lambda x, n: x**n)
    with recorded() as recording:
        for n in (3, 3, 4):
            f(rows(n))
        for n in (2, 3, 4):
            g(rows(3), n=n)
    _, found = told(recording)
    assert not [each for each in found if "operations of JAX" not in each.what]


@pytest.mark.rest
@jax_explains
def test_statics_that_vary_are_told_as_such():
    """And not as sizes; where JAX has no explanation, as unknown."""
    g = functools.partial(jax.jit, static_argnames="n")(lambda x, n: x**n)
    with recorded() as recording:
        for n in (2, 3, 4):
            g(rows(3), n=n)
    seen, _ = told(recording)
    why = [each.cause.why for each in seen.compiled if each.name == "<lambda>"]
    assert why[0] == "first call"
    assert len(why) == 3
    assert set(why[1:]) <= {"another static value", "unknown"}


@pytest.mark.rest
def test_a_cache_that_is_off_is_told_with_what_it_would_hold():
    """And one that keeps only what is slow to compile; a cache that keeps all is well."""
    with recorded() as recording:
        jax.jit(lambda x: jnp.linalg.inv(x) * 1.75)(rows(3, 3) + np.eye(3, dtype=np.float32))
    seen, _ = told(recording)
    missed = sum(each.compile_seconds for each in seen.compiled if not each.hit)
    (off,) = [
        each for each in told(recording, jax_compilation_cache_dir=None)[1] if "is off" in each.what
    ]
    assert off.seconds == pytest.approx(missed)
    (slow,) = [
        each
        for each in told(recording, jax_persistent_cache_min_compile_time_secs=100.0)[1]
        if "100 s" in each.what
    ]
    assert slow.seconds == pytest.approx(missed)


@pytest.mark.rest
def test_seconds_are_counted_once():
    """Phases and all else come to the time that the program took; data for JSON hold all of it."""
    with recorded() as recording:
        jax.jit(lambda x: jnp.tan(x) * 0.75)(rows(3))
    made = report(recording, "made.py", KEPT)
    data = json.loads(json.dumps(made.to_dict()))
    assert sum(data["phases"].values()) == pytest.approx(data["seconds"])
    assert data["seconds"] == made.seconds
    assert data["compiles"] + data["cache_hits"] == len(data["programs"])
    assert data["transfers"] is None
    assert "made.py ran for" in str(made)


@pytest.mark.parametrize(
    "text",
    [
        "Compiling f.",
        "Compiling jit(f) with global shapes and types (Other(3),). Argument mapping: ().",
    ],
)
def test_texts_that_read_otherwise_give_unknown_shapes(text):
    """JAX may write them differently one day."""
    assert parse_compiling(text)[1] is None
    assert parse_explanation("TRACING CACHE MISS at x.py:3:\n  something new") is None


def test_what_is_recorded_is_not_said(caplog, capsys):
    """JAX's explanations reach no handler of the program's."""
    with recorded():
        jax.jit(lambda x: x * 1.125)(rows(3))
    assert "MISS" not in caplog.text + capsys.readouterr().err


@pytest.mark.rest
@jax_explains
def test_functions_that_a_library_wraps_are_told_apart():
    """Equinox defines all it wraps on one line: a second function is no new one of the first, and
    sizes are counted for each.
    """
    wrapped = {name: eqx.filter_jit(body) for name, body in {"up": up, "down": down}.items()}
    with recorded() as recording:
        for n in (5, 6, 7, 8):
            wrapped["up"](rows(n))
        wrapped["down"](rows(5))
    seen, found = told(recording)
    assert [each.cause.why for each in seen.compiled if each.name == "down"] == ["first call"]
    (change,) = [each for each in found if "sizes" in each.what]
    assert change.what.startswith("up was compiled for 4 sizes")
    assert 'pad={"n": "pow2"}' in change.write
    assert "eqx.filter_jit" in change.write


@jax_explains
def test_a_decorated_function_is_asked_what_was_proven():
    """It may have refused the buckets, or its axes: no line is made up for it."""
    scaled = optimize(lambda x: x * 1.03125)
    with recorded() as recording:
        for n in (5, 6, 7):
            scaled(rows(n))
    _, found = told(recording)
    assert [each.write.split("  #")[0] for each in found if "sizes" in each.what] == [
        "print(f.stats)"
    ]


def up(x):
    return x * 1.0625


def down(x):
    return x * 0.9375
