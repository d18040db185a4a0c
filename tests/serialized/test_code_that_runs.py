"""What code reads is asked for if it runs, and it runs again while a program is kept, whatever JAX
remembers of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import equinox as eqx
import jax
import jax.numpy as jnp
import jitney
import lab_helper as helper


def total(x):
    return x * vars(helper)["K"]


@jax.custom_jvp
def ruled(x):
    return 2.0 * x


@ruled.defjvp
def rule(primals, tangents):
    return ruled(primals[0]), total(tangents[0])


@jax.custom_vjp
def backward(x):
    return 2.0 * x


backward.defvjp(lambda x: (backward(x), None), lambda _, ct: (total(ct),))
compiled = jax.jit(total)
inlined = jax.jit(total, inline=True)
checkpointed = jax.checkpoint(total)


@eqx.filter_custom_vjp
def filtered_backward(x):
    return 2.0 * x


@filtered_backward.def_fwd
def forward(perturbed, x):
    return filtered_backward(x), None


@filtered_backward.def_bwd
def back(residuals, ct, perturbed, x):
    return total(ct)


def called(x):
    return CALL


program = jitney.optimize(cache="program")(called)
"""
CALLS = {
    "jit": "compiled(x)",
    "jit, inlined": "inlined(x)",
    "filter_jit": "eqx.filter_jit(total)(x)",
    "checkpoint": "checkpointed(x)",
    "gradient of a checkpoint": "jax.grad(lambda x: jnp.sum(checkpointed(x)))(x)",
    "scan": "jax.lax.scan(lambda c, y: (c, total(y)), 0.0, x)[1]",
    "scan of a function": "jax.lax.scan(scanned, 0.0, x)[1]",
    "map": "jax.lax.map(total, x)",
    "while": "jax.lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, total(s[1])), (0, x))[1]",
    "cond": "jax.lax.cond(x[0] > 0, total, ruled, x)",
    "associative scan": "jax.lax.associative_scan(lambda a, b: a + total(b), x)",
    "vmap": "jax.vmap(total)(x)",
    "custom_jvp": "jax.grad(lambda x: jnp.sum(ruled(x)))(x)",
    "custom_jvp under jit": "jax.grad(lambda x: jnp.sum(jax.jit(ruled)(x)))(x)",
    "custom_vjp": "jax.grad(lambda x: jnp.sum(backward(x)))(x)",
    "custom_vjp of Equinox": "jax.grad(lambda x: jnp.sum(filtered_backward(x)))(x)",
    "custom_root": (
        "jax.lax.custom_root(lambda y: y - total(x), x, lambda f, y: total(x), lambda g, y: y)"
    ),
    "linear solve": "jax.lax.custom_linear_solve(lambda y: y / 2.0, x, lambda f, b: total(b))",
    "vectorize": "jnp.vectorize(total)(x)",
    "eval_shape": "x * jax.eval_shape(lambda x: jnp.zeros(int(total(1.0))), x).shape[0]",
    "linearize": "jax.linearize(total, x)[1](x)",
    "jacobian": "jax.jacfwd(total)(x) @ x",
}


GATE = ("jit", "scan of a function", "custom_vjp")


@pytest.mark.core("jit")
@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how in GATE else pytest.mark.slow) for how in CALLS]
)
def test_code_that_was_traced_before_is_seen_again(folder, tmp_path, how):
    """It is not kept, since `vars` is not followed, though JAX has what it traced."""
    text = TEXT.replace("CALL", CALLS[how]) + "\n\ndef scanned(c, y):\n    return c, total(y)\n"
    lab.write(tmp_path, {"lab_main.py": text, "lab_helper.py": "K = 2.0\n"})
    with lab.process(tmp_path) as main:
        x = jnp.ones(2)
        for _ in range(2):
            want = main.called(x), jax.jit(lambda x: main.called(x))(x)
        np.testing.assert_allclose(main.program(x), want[1], rtol=1e-6)
        [(is_kept, why)] = lab.notes(main.program)
        assert not is_kept
        assert "`total` uses `vars`" in why


def test_code_that_does_not_run_may_read_what_it_will(folder, tmp_path):
    """Until it runs."""
    text = TEXT.replace("CALL", "total(x) if FLAG else x") + "\n\nFLAG = False\n"
    lab.write(tmp_path, {"lab_main.py": text, "lab_helper.py": "K = 2.0\n"})
    x = jnp.ones(2)
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            np.testing.assert_array_equal(main.program(x), x)
            assert lab.notes(main.program) == note
    lab.write(tmp_path, {"lab_main.py": text.replace("FLAG = False", "FLAG = True")})
    with lab.process(tmp_path) as main:
        np.testing.assert_array_equal(main.program(x), 2 * x)
        assert not lab.notes(main.program)[0][0]


def test_equal_code_of_another_file_is_other_code(folder, tmp_path):
    """It reads other globals; where only one of the two was followed, the other is not taken for
    it.
    """
    text = """
    import jax.numpy as jnp
    import jitney
    import lab_helper as helper


    def hidden(x):
        return x * K


    K = 5.0


    def called(x):
        return hidden(x) * helper.run(x)


    program = jitney.optimize(cache="program")(called)
    """
    other = """
    import functools
    import sys


    def hidden(x):
        return x * K


    K = KK
    run = lambda x: getattr(sys.modules[__name__], "hid" + "den")(x)
    """
    x = jnp.ones(2)
    for k in (2.0, 3.0):
        lab.write(tmp_path, {"lab_main.py": text, "lab_helper.py": other.replace("KK", str(k))})
        with lab.process(tmp_path) as main:
            np.testing.assert_array_equal(main.program(x), 5 * k * x)
            assert not lab.notes(main.program)[0][0]


def test_a_listener_of_jaxs_is_no_part_of_the_trace(folder, tmp_path):
    """It may ask for the time."""
    text = """
    import time

    import jax
    import jitney

    heard = []


    def hear(event, seconds, **_):
        heard.append((event, seconds, time.time()))


    jax.monitoring.register_event_duration_secs_listener(hear)
    program = jitney.optimize(cache="program")(lambda x: x * 2)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            try:
                main.program(jnp.ones(2))
            finally:
                jax.monitoring.unregister_event_duration_listener(main.hear)
            assert main.heard
            assert lab.notes(main.program) == note
