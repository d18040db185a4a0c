"""The bodies of `_cases.py` under `verify`: what is honest raises no alarm."""

import inspect
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Shaped

import jitney
from tests.axes import _cases as cases


def size_text(part):
    """A size as annotations write it."""
    if not callable(part):
        return str(part)
    return f"{part(1) - part(0)}*n+{part(0)}"


def annotated(case):
    """The body of a case, as a function with a signature."""

    def body(*arrays):
        return case.fn(*arrays)

    hints = {
        f"a{i}": Shaped[Array, " ".join(map(size_text, shape))]
        for i, (shape, _) in enumerate(case.takes)
    }
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    body.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, annotation=hint) for name, hint in hints.items()]
    )
    body.__annotations__ = hints
    return body


def arguments(case, n):
    rng = np.random.default_rng(n)
    return [
        jnp.asarray(
            rng.integers(0, 4, aval.shape)
            if aval.dtype.kind == "i"
            else rng.normal(size=aval.shape) * 2,
            aval.dtype,
        )
        for aval in case.avals(n)
    ]


@pytest.mark.core("relu-pad", "segment sum-chunk", "cumulative sum-chunk", "scan-pad")
@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}], ids=["pad", "chunk"]
)
@pytest.mark.parametrize("case", cases.few(cases.CASES))
def test_what_is_honest_is_no_difference(case, options):
    """Padded or cut, or refused as it is without `verify`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.JitneyWarning)
        f = jitney.optimize(annotated(case), verify=True, **options)
        try:
            f(*arguments(case, 5))
        except jitney.errors.AxisError:
            assert "chunk" in options
