"""Large arrays that a function captures are not written with its program: their digests are in its
key, and another process passes its own.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._serialized.stored import load, save
from tests.serialized import _lab as lab

REST = pytest.mark.rest
KEPT = [(True, "cached for other processes")]
FOUND = [(True, "found: neither traced nor lowered in this process")]
TEXT = """
import jax.numpy as jnp
import numpy as np
import jitney

SIDE = 600
HOST = ((np.arange(SIDE * SIDE) + {first}) % 7 - 2).reshape(SIDE, SIDE).astype(np.{dtype})
W = {made}
V = np.full((SIDE, SIDE), {other}, np.float32)


@jitney.optimize(cache="program")
def program(x):
    return (W * x).sum() + jnp.sum(V) + {read}


def expected(x):
    return (HOST.astype(np.float32) * x).sum() + V.sum() + {read}
"""
# Python reads one number, and branches on it
READ = "(100 if float(np.asarray(W)[0, 0]) > 0 else 0)"
USUAL = {"first": 0, "dtype": "float32", "made": "jnp.asarray(HOST)", "other": 1, "read": 0}


def run(tmp_path, **given):
    """The note of the first call in a process with this module; its result is that of NumPy."""
    lab.write(tmp_path, {"lab_main.py": TEXT.format(**{**USUAL, **given})})
    with lab.process(tmp_path) as main:
        x = jnp.float32(3)
        np.testing.assert_array_equal(main.program(x), main.expected(3))
        taken = [line.taken for line in main.program.plan(x).lines if line.name == "captured array"]
        assert taken == [True, True]
        return lab.notes(main.program)


@pytest.mark.parametrize("made", ["jnp.asarray(HOST)", pytest.param("HOST", marks=REST)])
@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=REST), pytest.param("int64", marks=REST)]
)
def test_captured_array_is_not_written(folder, tmp_path, made, dtype):
    """An entry has some kilobytes, and the next process finds it."""
    with jax.numpy_dtype_promotion("standard"):
        assert run(tmp_path, made=made, dtype=dtype) == KEPT
        assert run(tmp_path, made=made, dtype=dtype) == FOUND
    (entry,) = folder.iterdir()
    assert entry.stat().st_size < 1 << 15


@pytest.mark.core("first-HOST")
@pytest.mark.parametrize("made", ["HOST", "jnp.asarray(HOST)"])
@pytest.mark.parametrize("another", [{"first": 5}, {"other": 2}], ids=["first", "other"])
def test_another_array_has_another_key(folder, tmp_path, made, another):
    """Python may have read any of its numbers."""
    for note in (KEPT, FOUND):
        for changed in ({}, another):
            assert run(tmp_path, made=made, read=READ, **changed) == note


def test_program_whose_array_is_not_there_is_not_used(folder, tmp_path):
    """As an entry of another form of key could name one."""
    assert run(tmp_path) == KEPT
    (entry,) = folder.iterdir()
    key = entry.name.removesuffix("-cache").rpartition("-")[2]
    stored = load(entry, key)
    assert len(stored.captured) == 2
    assert save(entry, dataclasses.replace(stored, captured=["0" * 64, stored.captured[1]]))
    ((is_kept, why),) = run(tmp_path)
    assert is_kept
    assert why.endswith("is not used: an array that it captures is not there")
    assert run(tmp_path) == FOUND


def test_array_that_the_trace_changes_is_not_cached(folder, tmp_path):
    """Its digest is that of before."""
    text = TEXT.format(**USUAL).replace("    return (W", "    V[0] += 1\n    return (W", 1)
    lab.write(tmp_path, {"lab_main.py": text})
    with lab.process(tmp_path) as main:
        main.program(jnp.float32(3))
        ((is_kept, why),) = lab.notes(main.program)
    assert not is_kept
    assert "changes what it reads" in why


def test_cached_program_with_a_captured_array_is_verified(folder, tmp_path):
    """A fresh trace takes the same arrays."""
    text = TEXT.format(**USUAL).replace('"program"', '"program", verify=True')
    lab.write(tmp_path, {"lab_main.py": text})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            np.testing.assert_array_equal(main.program(jnp.float32(3)), main.expected(3))
            assert lab.notes(main.program) == note
