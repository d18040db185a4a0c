"""JAX's own messages of a decorated function name the user's function, file, line and arguments, as
those of `jax.jit` do.
"""

import os
import re
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import TraceError
from tests._arrays import array

KEPT = []
ONE = array(1.0, np.float32)
OPTIONS = {
    "none": {},
    "pad": {"pad": {"n": "pow2"}},
    "chunk": {"chunk": {"n": 2}},
    "remat": {"remat": True},
    "memory": {"memory": "1 MiB"},
    "shard": {"shard": {"n": "d"}, "mesh": jax.make_mesh((1,), ("d",))},
    "program": {"cache": "program"},
    "compiler": {"compiler": "fast"},
    "precision": {"precision": "bf16"},
    "verify": {"verify": True},
}


def leaks(x: Float[Array, "n"], params: dict) -> Float[Array, ""]:
    KEPT.append(x * params["w"])
    return jnp.sum(x * params["w"])


class Module(eqx.Module):
    w: Array

    def __call__(self, x):
        KEPT.append(x * self.w)
        return x


def told(call):
    """What JAX says of each traced value that a call has left behind: `leaks at test_x.py:30`."""
    KEPT.clear()
    call()
    said = []
    for value in KEPT:
        try:
            value + 1
        except jax.errors.UnexpectedTracerError as error:
            said += re.findall(r"when the value leaked was (\w+ at \S+) traced", str(error))
    return {*said}


@pytest.mark.filterwarnings("ignore:.*cannot be")
@pytest.mark.core("none")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_leaked_tracer_names_the_function_as_jit_does(options):
    """Under every option, which traces it through functions of jitney's own."""
    arguments = jnp.ones(4), {"w": jnp.ones(())}
    jax.clear_caches()  # `jax.jit` traces a function once
    assert (
        told(lambda: optimize(**options)(leaks)(*arguments))
        == told(lambda: jax.jit(leaks)(*arguments))
        != set()
    )


def test_no_frame_of_jitney_stands_in_what_jax_says():
    """Nor in the metadata of a compiled program, which XLA prints in its warnings; the lines there
    are the caller's.
    """
    KEPT.clear()
    mesh = jax.make_mesh((1,), ("d",))
    f = optimize(shard={"n": "d"}, mesh=mesh, pad={"n": "pow2"})(leaks)
    text = f.lower(jnp.ones(5), {"w": jnp.ones(())}).compile().as_text()
    for value in KEPT:
        with pytest.raises(jax.errors.UnexpectedTracerError) as error:
            value + 1
        text += str(error.value)
    assert Path(__file__).name in text
    assert f"jitney{os.sep}_" not in text


@pytest.mark.parametrize(
    "call", [partial(leaks, params={"w": ONE}), Module(ONE), Module(ONE).__call__]
)
def test_a_leaked_tracer_names_what_a_callable_calls(call):
    code = leaks.__code__ if isinstance(call, partial) else Module.__call__.__code__
    assert told(lambda: optimize(call)(jnp.ones(4))) == {
        f"{code.co_name} at {code.co_filename}:{code.co_firstlineno}"
    }


def test_an_argument_is_named_by_its_path():
    """Where JAX says which argument a value depends on, in the words of `jax.jit`."""

    def shown(x, params):
        try:
            return np.asarray(params["w"])
        except jax.errors.TracerArrayConversionError as error:
            raise ValueError(str(error)) from None

    said = []
    for decorate in (optimize, jax.jit):
        with pytest.raises(ValueError, match="argument") as error:
            decorate(shown)(jnp.ones(3), {"w": jnp.ones(3)})
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "params['w']" in said[0]


@pytest.mark.parametrize("name", ["sizes", "path", "args", "arrays", "self"])
def test_an_argument_may_have_any_name(name):
    """Also one that functions of jitney's have."""
    space = {"pad": optimize(pad={"n": "pow2"}), "Float": Float, "Array": Array}
    exec(
        f'@pad\ndef f({name}: Float[Array, "n"]):\n    return {name} if {name}.sum() > 0 else'
        f" -{name}",
        space,
    )
    with pytest.raises(TraceError, match=f"depends on '{name}'"):
        space["f"](jnp.ones(5))


@pytest.mark.parametrize("key", ["w", "a.b", "x", "[0]", "the end"])
def test_the_argument_of_a_needed_value_is_found_by_any_path(key):
    """Paths that hold dots, blanks, brackets or each other's names are not mistaken for one
    another.
    """

    @optimize
    def f(x, params, x2):
        return 1.0 if params[key] > 0 else 2.0

    with pytest.raises(TraceError, match=re.escape(f"depends on {f'params[{key!r}]'!r}.")):
        f(jnp.ones(3), {key: jnp.ones(()), "other": jnp.ones(())}, jnp.ones(3))
