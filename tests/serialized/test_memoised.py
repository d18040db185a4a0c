"""Functions that remember what they returned: what they do is state, unless it is what they would
compute.
"""

import jax
import numpy as np
import pytest

from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import functools
import jitney
import numpy as np

K = NUMBER


@functools.cache
def table(n):
    return np.arange(1, n + 1, dtype=np.float32) * K


@functools.lru_cache(maxsize=2)
def total(n):
    return float(table(n).sum())


@functools.cache
def listed(n):
    return [float(n)]


def first(x):
    return x * total(3)


def second(x):
    return x + total(3) + table(2)[0]


def third(x):
    return x * total(4) + total(5)


def changes(x):
    listed(3).append(K)
    return x * listed(3)[1]


PROGRAMS = [jitney.optimize(cache="program")(body) for body in (first, second, third)]
changing = jitney.optimize(cache="program")(changes)
"""
X = np.ones(2, np.float32)


def write(path, number=2.0):
    lab.write(path, {"lab_main.py": TEXT.replace("NUMBER", repr(number))})


def sums(k):
    return [6 * k, 1 + 6 * k + k, 10 * k + 15 * k]


@pytest.mark.rest
def test_a_process_that_finds_one_program_finds_the_next(folder, tmp_path):
    """Though the one that made them remembered more and more; an edited number is the one that is
    computed with.
    """
    for number, note in ((2.0, KEPT), (2.0, FOUND), (3.0, KEPT), (3.0, FOUND)):
        write(tmp_path, number)
        with lab.process(tmp_path) as main:
            for program, value in zip(main.PROGRAMS, sums(number), strict=True):
                np.testing.assert_allclose(program(X), value * np.ones(2), rtol=1e-6)
                assert lab.notes(program) == note
            assert main.total.cache_info().currsize == (2 if note == KEPT else 0)


def test_what_was_remembered_before_is_computed_with(folder, tmp_path):
    """As `jax.jit` does, though a process that remembers nothing computes another number; neither
    is given the program of the other.
    """
    write(tmp_path, 5.0)
    for is_warm, note in ((False, KEPT), (True, KEPT), (True, FOUND), (False, FOUND)):
        with lab.process(tmp_path) as main:
            if is_warm:
                main.K = 2.0
                main.total(3)
                main.K = 5.0
            np.testing.assert_allclose(
                main.PROGRAMS[0](X), 6 * (2.0 if is_warm else 5.0) * np.ones(2)
            )
            np.testing.assert_allclose(jax.jit(main.first)(X), main.PROGRAMS[0](X))
            assert lab.notes(main.PROGRAMS[0]) == note


def test_what_a_trace_has_computed_counts_until_what_it_read_is_changed(folder, tmp_path):
    """Then it is remembered as any other number of before."""
    write(tmp_path)
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            main.PROGRAMS[0](X)
            if note == FOUND:  # nothing is remembered, since nothing was traced
                main.total(3)
            main.K = 7.0
            np.testing.assert_allclose(main.PROGRAMS[1](X), (1 + 12 + 7) * np.ones(2))
            assert lab.notes(main.PROGRAMS[1]) == note


@pytest.mark.core("True")
@pytest.mark.parametrize("warm", [False, True])
def test_a_trace_that_changes_what_is_remembered_is_not_kept(folder, tmp_path, warm):
    """What it appended is appended once, in each process."""
    write(tmp_path)
    for _ in range(2):
        with lab.process(tmp_path) as main:
            if warm:
                main.listed(3)
            np.testing.assert_allclose(main.changing(X), 2 * np.ones(2))
            [(is_kept, why)] = lab.notes(main.changing)
            assert not is_kept
            assert (
                why == "not cached:"
                f" {'the trace changes what it reads' if warm else 'what `listed` remembers is changed'}"
            )


@pytest.mark.rest
def test_settings_of_another_program_do_not_count_as_those_of_this_one(folder, tmp_path):
    """What was computed under them is remembered all the same."""
    text = """
    import functools
    import jax
    import jax.numpy as jnp
    import jitney
    import numpy as np

    @functools.cache
    def width():
        with jax.ensure_compile_time_eval():
            return jnp.asarray(np.float64(1)).dtype.itemsize


    def body(x):
        return x * width()


    wide = jitney.optimize(cache="program", precision="f64")(body)
    narrow = jitney.optimize(cache="program")(body)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    for order, width in (("wide narrow", 8), ("narrow", 4), ("wide", 8)):
        with lab.process(tmp_path) as main:
            outs = [np.asarray(getattr(main, name)(X)) for name in order.split()]
            np.testing.assert_array_equal(outs[-1], outs[0])
            np.testing.assert_array_equal(outs[0], width * X)
