"""An error begins with itself: not with one of jitney's own that was handled on the way."""

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import ContractError
from tests._arrays import array

OPTIONS = {
    "none": {},
    "pad": {"pad": {"n": "pow2"}},
    "vmap and pad": {"vmap": {"row": {"x": 0, "y": 0}}, "pad": {"row": "pow2"}},
    "chunk": {"chunk": {"n": 2}},
    "memory": {"memory": "1 MiB"},
    "shard": {"shard": {"n": "d"}, "mesh": jax.make_mesh((1,), ("d",))},
    "program": {"cache": "program"},
    "verify": {"verify": True},
    "debug_nans": {"debug_nans": True},
    "precision": {"precision": "auto:1e-3"},
}


def dot(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * y)


def chain(error):
    """What Python prints before it."""
    shown = []
    while (
        error := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        shown.append(error)
    return shown


@pytest.mark.core("memory", "chunk", "pad", "shard", "vmap*")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_first_misfit_is_alone(options):
    """In the first call, and behind one that fits."""
    f = optimize(**options)(dot)
    two = (
        [array([[1.0] * 4] * 2), array([[1.0] * 3] * 2)]
        if "vmap" in options
        else [array([1.0] * 4), array([1.0] * 3)]
    )
    for fits in (False, True):
        if fits:
            f(two[0], two[0])
        with pytest.raises(ContractError, match="two sizes") as told:
            f(*two)
        assert chain(told.value) == []


@pytest.mark.filterwarnings("ignore:.*cannot be padded here")
def test_an_error_of_a_body_behind_a_refusal_is_alone():
    """The call runs at exact size then, and what its body raises has no part in the refusal."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        if isinstance(x.shape[0], int) and x.shape[0] == 3:
            raise ValueError("the user's own")
        return jnp.fft.fft(x).real

    with pytest.raises(ValueError, match="the user's own") as told:
        f(jnp.ones(3))
    assert chain(told.value) == []
