"""The logger `jitney`: each new trace with its cause, for a service that does not poll `stats`."""

import logging

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize


def _total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


def test_each_new_trace_is_logged_with_its_cause(caplog):
    """The function and its first call, then the shape that differs; a warm call logs nothing."""

    # A function of its own: one that an earlier test has called is "created again" here.
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    f = optimize(total)
    with caplog.at_level(logging.INFO, logger="jitney"):
        f(np.ones(3, np.float32))
        f(np.ones(3, np.float32))
        f(np.ones(4, np.float32))
    first, second = caplog.records
    assert first.getMessage().endswith(": traced: first call")
    assert second.getMessage().startswith("total() at test_log.py:")
    assert "float32[3] -> float32[4]" in second.getMessage()
    assert (second.levelname, second.name) == ("INFO", "jitney")


def test_a_log_record_carries_the_cause_as_data(caplog):
    """For a handler that writes JSON."""
    f = optimize(_total)
    with caplog.at_level(logging.INFO, logger="jitney"):
        f(np.ones(3, np.float32))
        f(np.ones(4, np.float32))
    record = caplog.records[-1]
    assert record.function.startswith("_total() at test_log.py:")
    assert [(cause.kind, cause.axis) for cause in record.causes] == [("shape", "n")]


def test_nothing_is_logged_below_the_level(caplog):
    """Python's default level is WARNING, so a program says nothing unless it is asked."""
    f = optimize(_total)
    f(np.ones(3, np.float32))
    assert caplog.records == []
