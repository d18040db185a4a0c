"""What code names is read of its instructions."""

import gc
import types

import pytest

from jitney._record import instructions

WRITTEN = """
import jax.numpy as jnp


def f(module, name, x):
    global count
    from . import sibling
    from .. import parent as other
    count = 1
    table = {1, 2, 3}
    known = x in {4, 5}
    return getattr(module, name), getattr(jnp, "sin"), jnp.linalg.norm(x), map(getattr, x), sibling.a.b, other, table, known
"""


@pytest.mark.rest
def test_instructions_are_read_as_python_reads_them(monkeypatch):
    """As `dis` does, of all functions that are here, and of one that does what is looked for."""
    codes = {value.__code__ for value in gc.get_objects() if type(value) is types.FunctionType}
    codes = [
        *sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno))[::16],
        compile(WRITTEN, "<written>", "exec"),
    ]
    read = [instructions.reads_of.__wrapped__(code) for code in codes]
    monkeypatch.setattr(instructions, "_IS_KNOWN", False)
    assert read == [instructions.reads_of.__wrapped__(code) for code in codes]
    assert read[-1].has_sets
    assert read[-1].changes == ("count",)
    assert read[-1].blind == {"getattr"}
    assert set(read[-1].imports) == {("jax.numpy", 0), ("", 1), ("", 2)}


def test_names_beyond_the_first_256_are_read():
    """An instruction has one byte for its number, and others in front of it for more."""
    text = "\n".join(f"name{i}.part{i}" for i in range(300))
    assert {(f"name{i}", f"part{i}") for i in range(300)} <= set(
        instructions.reads_of(compile(text, "<many>", "exec")).chains
    )
