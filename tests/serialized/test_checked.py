"""Programs with run-time checks are kept: the number of the check that failed, and the messages
beside them.
"""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import equinox as eqx
import jax
import jax.numpy as jnp
import jitney

LIMIT = 9.0


def rooted(x):
    root = jnp.sqrt(eqx.error_if(x, x < 0, "below zero"))
    return root, jnp.sum(eqx.error_if(root, root > LIMIT, f"above {LIMIT}"))


def branched(x, which):
    return eqx.branched_error_if(x, which != 0, which, ["none", "one", "two", "last"])


def looped(x):
    return jax.lax.fori_loop(0, 3, lambda i, y: eqx.error_if(y, y > 8, "too far") * 2, x)


program = jitney.optimize(cache="program")(rooted)
late = jitney.optimize(cache="program", runtime_checks="later")(rooted)
mapped = jitney.optimize(cache="program", vmap={"row": {"x": 0}})(rooted)
each = jitney.optimize(cache="program")(branched)
loop = jitney.optimize(cache="program")(looped)
"""


def message(call):
    """What the author of a check has it say."""
    from jitney._jax.equinox_checks import words_of

    with pytest.raises(eqx.EquinoxRuntimeError) as raised:
        call()
    return words_of(raised.value)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["program", "mapped"])
def test_its_checks_raise_what_they_raise_where_it_is_traced(folder, tmp_path, name):
    """By type and message, of the one that fails first; and numbers are to the bit those of
    `eqx.filter_jit`.
    """
    lab.write(tmp_path, {"lab_main.py": TEXT})
    good, low, high = (
        np.array([[1.0, value]], np.float32)[0 if name == "program" else slice(None)]
        for value in (4.0, -1.0, 100.0)
    )
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            program = getattr(main, name)
            assert message(partial(program, low)) == "below zero"
            assert message(partial(program, high)) == "above 9.0"
            plain = eqx.filter_jit(main.rooted if name == "program" else jax.vmap(main.rooted))
            for got, want in zip(program(good), plain(jnp.asarray(good)), strict=True):
                np.testing.assert_array_equal(got, want)
            assert lab.notes(program) == note


@pytest.mark.rest
def test_a_check_of_several_messages_raises_the_one_that_it_chooses(folder, tmp_path):
    """Those that count from the end too."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            x = jnp.ones(2)
            for which, said in ((1, "one"), (2, "two"), (-1, "last")):
                assert message(partial(main.each, x, jnp.asarray(which))) == said
            np.testing.assert_array_equal(main.each(x, jnp.asarray(0)), x)
            assert lab.notes(main.each) == note


@pytest.mark.rest
def test_a_check_in_a_loop_is_kept(folder, tmp_path):
    """It ends the loop."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            assert main.loop(jnp.array([2.0]))[0] == 16
            assert message(lambda: main.loop(jnp.array([3.0]))) == "too far"
            assert lab.notes(main.loop) == note


@pytest.mark.rest
def test_a_late_check_is_raised_late(folder, tmp_path):
    """`jitney.wait` raises it."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            main.late(np.array([-1.0, 1.0], np.float32))
            assert message(jitney.wait) == "below zero"
            assert lab.notes(main.late) == note


@pytest.mark.rest
def test_a_message_that_is_made_of_a_global_is_that_of_now(folder, tmp_path):
    """The limit too."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        assert message(lambda: main.program(np.array([100.0], np.float32))) == "above 9.0"
    lab.write(tmp_path, {"lab_main.py": TEXT.replace("9.0", "11.0")})
    with lab.process(tmp_path) as main:
        assert main.program(np.array([100.0], np.float32))[1] == 10
        assert message(lambda: main.program(np.array([144.0], np.float32))) == "above 11.0"


@pytest.mark.rest
def test_a_message_that_is_edited_is_that_of_now(folder, tmp_path):
    """Though no number changes."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for said in ("below zero", "negative"):
        lab.write(tmp_path, {"lab_main.py": TEXT.replace("below zero", said)})
        with lab.process(tmp_path) as main:
            assert message(lambda: main.program(np.array([-1.0], np.float32))) == said
            assert lab.notes(main.program) == KEPT


@pytest.mark.rest
def test_what_equinox_does_on_errors_is_a_part_of_the_key(folder, tmp_path, monkeypatch):
    """As it does it, whatever the environment says by now."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    x = np.array([-1.0, 1.0], np.float32)
    with lab.process(tmp_path) as main:
        assert message(lambda: main.program(x)) == "below zero"
    monkeypatch.setitem(eqx.error_if.__globals__, "EQX_ON_ERROR", "nan")
    with lab.process(tmp_path) as main:
        assert np.isnan(main.program(x)[1])
        assert lab.notes(main.program) == KEPT


@pytest.mark.rest
def test_under_outer_transforms_checks_are_equinoxs(folder, tmp_path):
    """Whether or not the program was found."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for _ in range(2):
        with lab.process(tmp_path) as main:
            x = jnp.array([4.0, 9.0])
            main.program(x)
            np.testing.assert_allclose(
                jax.grad(lambda x: main.program(x)[1])(x), [1 / 4, 1 / 6], rtol=1e-6
            )
            with pytest.raises(RuntimeError, match=re.escape("below zero")):
                eqx.filter_jit(lambda x: main.program(x))(-x)


@pytest.mark.rest
def test_lineax_fails_in_its_own_words(folder, tmp_path):
    """Its checks are in an operation of its own."""
    text = """
    import jitney
    import lineax


    def solved(matrix, b):
        return lineax.linear_solve(lineax.MatrixLinearOperator(matrix), b).value


    program = jitney.optimize(cache="program")(solved)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    said: list[str] = []
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            np.testing.assert_allclose(
                main.program(2 * jnp.eye(2), jnp.ones(2)), [0.5, 0.5], rtol=1e-6
            )
            said.append(message(lambda: main.program(jnp.zeros((2, 2)), jnp.ones(2))))
            assert lab.notes(main.program) == note
    assert said[0] == said[1]
    assert "linear solver" in said[0]
