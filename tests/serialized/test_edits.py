"""Whatever is edited, nothing stale is run; and what changes nothing loses nothing.

Each edit is made to a package that a pretended process has imported, called and kept; a second one
imports it anew. The reference is the sum of the numbers that the sources hold then.
"""

import itertools
import re

import numpy as np
import pytest

from tests.serialized import _lab as lab
from tests.serialized._around import AROUND, OTHER

EDITS = list(itertools.product(lab.CONTEXTS, lab.NUMBERS))
GATE = 8  # of the edits below; the others are slow
SAME = {
    "comments": lambda text: "# a comment\n\n\n" + text.replace("\n\n", "\n# another\n\n"),
    "blank lines": lambda text: text.replace("\n\n", "\n\n\n\n"),
    "new functions": lambda text: text + "\n\ndef unrelated(x):\n    return x * 99\n",
    "new globals": lambda text: text + "\n\nUNRELATED = 99\n",
    "formatting": lambda text: re.sub(r" \* ", "*", text),
    "parentheses": lambda text: re.sub(
        r"return (x \* [\d.]+)\n", r"return (\n        \1\n    )\n", text
    ),
}
QUIET = list(itertools.product(lab.CONTEXTS, SAME))


def cases(all_: list, few: int) -> list:
    """All of them, of which a few are in each run of the tests."""
    every = max(len(all_) // few, 1)
    return [
        pytest.param(
            *case, marks=() if i % every == 7 % every else pytest.mark.slow, id="-".join(case)
        )
        for i, case in enumerate(all_)
    ]


def run(path, context, numbers, change=str):
    """What a process gives, and what it says of keeping."""
    lab.write(path, lab.sources(context, numbers, change))
    with lab.process(path) as main:
        out = np.asarray(main.program(np.array(lab.X, np.float32)))
        np.testing.assert_allclose(out, np.array(lab.X) * lab.total_of(numbers), rtol=1e-5)
        return lab.notes(main.program), main.program.stats.traces


@pytest.mark.core("plain-set_member")
@pytest.mark.parametrize(("context", "place"), cases(EDITS, GATE))
def test_an_edited_number_is_the_one_that_is_computed_with(shared, tmp_path, context, place):
    """Wherever it stands: the program of before is not found, and the result is the new one."""
    first, _ = run(tmp_path, context, lab.NUMBERS)
    assert [kept for kept, _ in first] == [True], first
    second, traces = run(tmp_path, context, {**lab.NUMBERS, place: lab.NUMBERS[place] + 8})
    assert (traces, len(second)) == (1, 1)


@pytest.mark.core("jit-blank lines")
@pytest.mark.parametrize(("context", "change"), cases(QUIET, 3))
def test_an_edit_that_changes_nothing_keeps_its_program(shared, tmp_path, context, change):
    """Comments, formatting, and what the function does not read."""
    run(tmp_path, context, lab.NUMBERS)
    again, traces = run(tmp_path, context, lab.NUMBERS, SAME[change])
    assert (traces, again[0][1]) == (0, "found: neither traced nor lowered in this process")


@pytest.mark.core("what an alias is of")
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=() if i % 11 == 3 else pytest.mark.slow)
        for i, what in enumerate(AROUND)
    ],
)
def test_what_lies_around_a_function_is_never_stale(folder, tmp_path, monkeypatch, what):
    """Kept or not: the second process computes with what it has."""
    import jax

    before = {name: getattr(jax.numpy, name) for name in ("exp", "tanh")}
    for number in (2.5, 3.5, 3.5):
        text = (
            f"import jitney\n{AROUND[what].replace('{}', repr(number))}\nprogram ="
            " jitney.optimize(cache='program')(called)\n"
        )
        lazy = f"def __getattr__(name):\n    return {number}\n"
        lab.write(
            tmp_path,
            {
                "lab_main.py": text,
                "lab_main.py.txt": str(number),
                "lab_other.py": OTHER,
                "lab_lazy.py": lazy,
                "lab_star.py": f"STAR = {number}\n",
            },
        )
        monkeypatch.setenv("LAB_K", str(number))
        try:
            with lab.process(tmp_path) as main, np.printoptions():
                out = np.asarray(main.program(np.ones(2, np.float32)))
        finally:
            for name, fn in before.items():
                setattr(jax.numpy, name, fn)
        np.testing.assert_allclose(out, number * np.ones(2), rtol=1e-6)


# ways in which JAX and Equinox keep a trace, of which the first run in each run of the tests
AGAIN = {
    "jit": "jax.jit(helper)(x)",
    "filter_jit": "equinox.filter_jit(helper)(x)",
    "checkpoint": "jax.checkpoint(helper)(x)",
    "scan": "jax.lax.scan(body, 0, x)[1]",
    "cond": "jax.lax.cond(x[0] > 0, helper, helper, x)",
    "grad": "jax.grad(total)(x) * x",
    "vmap of jit": "jax.vmap(jax.jit(helper))(x)",
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way == "jit" else pytest.mark.slow) for way in AGAIN]
)
def test_a_helper_traced_earlier_is_read_as_it_is_now(folder, tmp_path, way):
    """JAX keeps the trace of a function; a program that is kept is made of what the function reads
    when it is made.
    """
    text = f"""
    import equinox
    import jax
    import jitney

    K = 2.0


    def helper(x):
        return x * K


    def body(carry, x):
        return carry, helper(x)


    def total(x):
        return jax.numpy.sum(helper(x))


    def called(x):
        return {AGAIN[way]}


    program = jitney.optimize(cache="program")(called)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    x = np.ones(2, np.float32)
    with lab.process(tmp_path) as main:
        main.called(x)
        main.K = 3.0
        np.testing.assert_allclose(main.program(x), 3 * x)
    for number, is_found in ((2.0, False), (3.0, True)):
        with lab.process(tmp_path) as main:
            main.K = number
            np.testing.assert_allclose(main.program(x), number * x)
            assert lab.is_found(main.program) is is_found
