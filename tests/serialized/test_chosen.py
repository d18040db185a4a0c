"""Programs of which jitney chooses something: loops for layers, chunks that fit, what a backward
pass saves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney._serialized import key
from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import jax
import jax.numpy as jnp
import jitney
import lab_helper as helper
from jaxtyping import Array, Float


def half(x, w):
    h = jnp.sin(x @ w + helper.shift)
    h = h - jnp.mean(h, axis=-1, keepdims=True)
    h = h / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + 1.0)
    return 0.5 * x + 0.1 * jnp.tanh(h) * jnp.exp(-(h**2))


def layers(ws: list, x: Float[Array, "n d"]) -> Float[Array, ""]:
    for w in ws:
        x = half(jnp.cos(half(x, w)), w)
    return jnp.mean(x)


def pairs(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n"]:
    return jnp.sum(jnp.exp(-(x[:, None] - y[None]) ** 2) * helper.shift, (1, 2))


programs = {
    "roll": jitney.optimize(cache="program", roll="auto")(layers).grad,
    "remat": jitney.optimize(cache="program", remat="auto", memory="18KiB")(layers).grad,
    "recomputed": jitney.optimize(cache="program", memory="1MiB")(layers).grad,
    "memory": jitney.optimize(cache="program", chunk={"n": "auto"}, memory="64KiB")(pairs),
}
"""
CHOICES = {"roll": "layers", "remat": "derivative", "recomputed": "derivative", "memory": "memory"}


def arguments(name):
    if name == "memory":
        return jnp.linspace(0, 1, 512).reshape(256, 2), jnp.ones((32, 2))
    return [0.1 * jnp.eye(8) + 0.01 * i for i in range(6)], jnp.linspace(0, 1, 64).reshape(8, 8)


def body(main, name):
    """What the program computes, as JAX does."""
    if name == "memory":
        return main.pairs
    return jax.grad(main.layers, argnums=(0, 1))


def numbers(value):
    return np.concatenate([np.ravel(part) for part in jax.tree.leaves(value)])


@pytest.mark.rest
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "recomputed" else ())
        for name in CHOICES
    ],
)
def test_what_was_chosen_is_found_and_told_again(folder, tmp_path, name):
    """The numbers of plain JAX, and one plan in both processes; a helper that is edited is the one
    that is computed with.
    """
    told: list[list[str]] = []
    for shift, note in ((1.0, KEPT), (1.0, FOUND), (2.0, KEPT)):
        lab.write(tmp_path, {"lab_main.py": TEXT, "lab_helper.py": f"shift = {shift}\n"})
        with lab.process(tmp_path) as main:
            program, given = main.programs[name], arguments(name)
            got = program(*given)
            np.testing.assert_allclose(
                numbers(got), numbers(body(main, name)(*given)), rtol=1e-4, atol=1e-5
            )
            [made] = [program] if hasattr(program, "core") else program.function.derivatives("grad")
            assert lab.notes(made) == note
            told.append(
                [
                    line.why
                    for line in program.plan(*given).lines
                    if line.name == CHOICES[name] and line.taken
                ]
            )
    assert told[0]
    assert told[0] == told[1]


def test_what_is_free_is_not_kept(folder, tmp_path):
    """It is another number in each process."""
    lab.write(tmp_path, {"lab_main.py": TEXT, "lab_helper.py": "shift = 1.0\n"})
    with lab.process(tmp_path) as main:
        program = jitney.optimize(cache="program", chunk={"n": "auto"}, memory="auto")(main.pairs)
        program(*arguments("memory"))
        [(is_kept, why)] = lab.notes(program)
    assert not is_kept
    assert (
        why
        == 'not cached: programs with `memory="auto"` are not cached: what is free is another number'
        " each time"
    )


@pytest.mark.rest
def test_other_processors_are_another_program_where_bytes_are_counted(
    folder, tmp_path, monkeypatch
):
    """The compiler counts for the processor that it compiles for."""
    lab.write(tmp_path, {"lab_main.py": TEXT, "lab_helper.py": "shift = 1.0\n"})
    for processor, note in (("one", KEPT), ("one", FOUND), ("another", KEPT)):
        monkeypatch.setattr(key, "processor", lambda told=processor: (told,))
        with lab.process(tmp_path) as main:
            main.programs["memory"](*arguments("memory"))
            assert lab.notes(main.programs["memory"]) == note
