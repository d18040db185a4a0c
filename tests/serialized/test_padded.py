"""Padded programs are kept for their bucket; what a trace of one does besides, it does in each
process.
"""

import functools
import re
import warnings

import numpy as np
import pytest

import jitney
from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT, jitney_verifying

TEXT = """
import equinox as eqx
import jax
import jax.numpy as jnp
import jitney
from jaxtyping import Array, Float

LIMIT = 9.0


def shares(x: Float[Array, "n"], power: int = 2) -> tuple[Float[Array, "n"], Float[Array, "2*n"], str]:
    return jax.nn.softmax(x) ** power, jnp.concatenate([x, x]) - jnp.mean(x), "shares"


def weighed(x: Float[Array, "n"]) -> Float[Array, ""]:
    n = x.shape[0]
    return jnp.sum(x) * (1 - n / (n + 1))


def chosen(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * jnp.sum(jnp.ones(20 - x.shape[0]))


def limited(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(eqx.error_if(x, jnp.max(x) > LIMIT, f"above {LIMIT}"))


PAD = {"n": "pow2"}
padded = jitney.optimize(cache="program", pad=PAD)(shares)
mapped = jitney.optimize(cache="program", vmap="batch", pad={"batch": [4, 8]})(shares)
numbered = jitney.optimize(cache="program", pad=PAD)(weighed)
refused = jitney.optimize(cache="program", pad=PAD)(chosen)
checked = jitney.optimize(cache="program", pad=PAD)(limited)
"""


def upto(n):
    return np.arange(1, n + 1, dtype=np.float32)


def check_shares(program, x):
    """In NumPy, of one row or of several."""
    power, doubled, name = program(x)
    parts = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(power, (parts / parts.sum(-1, keepdims=True)) ** 2, rtol=1e-5)
    np.testing.assert_allclose(
        doubled, np.concatenate([x, x], -1) - x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6
    )
    assert name == "shares"


@pytest.mark.core("mapped")
@pytest.mark.parametrize("name", ["padded", "mapped"])
def test_another_process_finds_it_for_all_sizes_of_the_bucket(folder, tmp_path, name):
    """Its results are cut to each size, along what the body sees and along what is mapped."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note, first in ((KEPT, 5), (FOUND, 7)):
        with lab.process(tmp_path) as main:
            program = getattr(main, name)
            for n in (first, 6, 8):
                check_shares(
                    program, upto(n) if name == "padded" else upto(4 * n).reshape(n, 4) / 10
                )
            assert lab.notes(program) == note
            assert program.stats.traces == (note == KEPT)


@pytest.mark.rest
def test_the_plan_says_what_became_of_the_bucket(folder, tmp_path):
    """Of the call that it is asked for."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        main.padded(upto(5))
        said = [
            [line.why for line in main.padded.plan(upto(n)).lines if line.name == "cached program"]
            for n in (5, 3)
        ]
        assert said == [["cached for other processes"], ["not called yet"]]


def test_where_each_new_size_is_traced_nothing_is_kept(folder, tmp_path):
    """Numbers that Python makes of sizes are in no program."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for _ in range(2):
        with lab.process(tmp_path) as main:
            for n in (5, 6, 7):
                np.testing.assert_allclose(main.numbered(upto(n)), n / 2, rtol=1e-6)
            [(is_kept, why)] = lab.notes(main.numbered)
            assert not is_kept
            assert why.startswith("not cached: each new size is traced, for lab_main.py:")
    assert not list(folder.iterdir())


def test_a_refusal_is_the_same_in_each_process(folder, tmp_path):
    """One warning, and the exact sizes, which are found."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    said: list[str] = []
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            with pytest.warns(jitney.JitneyWarning, match=r"makes an array of - n \+ 20") as warned:
                np.testing.assert_array_equal(main.refused(upto(5)), 15 * upto(5))
            np.testing.assert_array_equal(main.refused(upto(6)), 14 * upto(6))
            said.append(str(warned[0].message))
            assert lab.notes(main.refused) == 2 * note
    assert said[0] == said[1]


@pytest.mark.rest
def test_a_contract_is_checked_in_each_process(folder, tmp_path):
    """Padded programs are found behind that."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for _ in range(2):
        with lab.process(tmp_path) as main:
            main.padded(upto(5))
            with pytest.raises(jitney.errors.ContractError, match="'x'"):
                main.padded(upto(4).reshape(2, 2))


@pytest.mark.rest
def test_a_check_of_a_padded_program_looks_at_the_true_size(folder, tmp_path):
    """And raises its message in each process."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            assert main.checked(upto(7)) == 28
            with pytest.raises(RuntimeError, match=re.escape("above 9.0")):
                main.checked(10 * upto(5))
            assert main.checked(upto(5)) == 15
            assert lab.notes(main.checked) == note


EDITS = {
    "another bucket rule": (('"pow2"', "[8]"),),
    "an axis with another name": (('"n"', '"m"'), ('"2*n"', '"2*m"')),
    "another result": (('Float[Array, "2*n"]', 'Float[Array, "_"]'),),
    "another default": (("power: int = 2", "power: int = 1"),),
}


@pytest.mark.core("another bucket rule")
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_what_pads_is_another_program(folder, tmp_path, edit):
    """Whether or not its numbers differ."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        main.padded(upto(5))
    text = functools.reduce(lambda text, change: text.replace(*change), EDITS[edit], TEXT)
    lab.write(tmp_path, {"lab_main.py": text})
    with lab.process(tmp_path) as main, warnings.catch_warnings():
        warnings.simplefilter("error")
        power, _, _ = main.padded(upto(5))
        parts = np.exp(upto(5))
        np.testing.assert_allclose(
            power, (parts / parts.sum()) ** (1 if edit == "another default" else 2), rtol=1e-5
        )
        assert lab.notes(main.padded) == KEPT


@pytest.mark.rest
def test_verify_compares_padded_programs_too(folder, tmp_path):
    """What is found is traced, and is the same."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with jitney_verifying(), lab.process(tmp_path) as main:
            check_shares(main.padded, upto(5))
            assert lab.notes(main.padded)[:1] == note
