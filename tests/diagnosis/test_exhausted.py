"""An error of a device without memory stays that of JAX, and says what takes less."""

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, Int

from jitney import optimize
from tests._arrays import array

LARGE = 2**22  # its square is more than any machine has


def wide(x: Float[Array, ""]) -> tuple[Float[Array, "a b"], Float[Array, ""]]:
    return jnp.full((LARGE, LARGE), x), x + 1


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, 'memory="auto" cuts an axis'),
        ({"chunk": {"row": 1}, "vmap": "row"}, "smaller sizes in `chunk`"),
        ({"donate": "x"}, "have to be made anew"),
    ],
    ids=str,
)
def test_an_error_of_memory_has_a_note(options, words):
    """The type and the text are JAX's; each call has one note, also a warm one."""
    f = optimize(**options)(wide)
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="emory") as error:
            jax.block_until_ready(f(array([1.0] * 2 if "vmap" in options else 1.0)))
        notes = [note for note in error.value.__notes__ if "out of memory: " in note]
        assert len(notes) == 1
        assert words in notes[0]


@pytest.mark.rest
@pytest.mark.parametrize("rows", [False, True], ids=["one", "rows"])
def test_an_error_of_a_padded_program_names_its_buckets(rows):
    def of_table(x: Float[Array, "n"], i: Int[Array, "n"]):
        return jnp.zeros((LARGE, LARGE)).at[i, i].set(x)[0, :3]

    f = optimize(pad={"n": "pow2"}, **({"vmap": "row"} if rows else {}))(of_table)
    given = [array([1.0] * n) for n in (3, 5)], [array([1] * n) for n in (3, 5)]
    with pytest.raises(jax.errors.JaxRuntimeError, match="emory") as error:
        jax.block_until_ready(f(*given) if rows else f(*(each[0] for each in given)))
    (note,) = (note for note in error.value.__notes__ if "out of memory: " in note)
    assert "finer buckets take less" in note


@pytest.mark.rest
def test_other_errors_have_none():
    """An option that XLA does not know is an error of JAX of the same class."""
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        optimize(compiler={"xla_no_such_option": True})(lambda x: x + 1)(array(1.0))
    assert not any("out of memory" in note for note in getattr(error.value, "__notes__", []))
