"""Calls held against the contract of a function, and signatures to do it with."""

import inspect
from collections.abc import Callable
from typing import NamedTuple, TypedDict

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney._contract.contract import check_arguments, check_result, contract_of
from jitney._errors import ContractError, Where
from tests._arrays import array


def contract(fn):
    return contract_of(fn, inspect.signature(fn), Where("residual", "fit.py", 12))


def check(fn, *args, **kwargs):
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    return check_arguments(contract(fn), bound.arguments)


def refusal(fn, *args, **kwargs):
    with pytest.raises(ContractError) as caught:
        check(fn, *args, **kwargs)
    message = str(caught.value)
    lines = message.splitlines()
    assert lines[0].startswith("residual() at fit.py:12: ")
    assert lines[-1].startswith("Fix: ")
    return message


def result_refusal(fn, result, *args):
    arguments = inspect.signature(fn).bind(*args).arguments
    sizes, _ = check_arguments(contract(fn), arguments)
    with pytest.raises(ContractError) as caught:
        check_result(contract(fn), result, sizes, arguments)
    return str(caught.value)


def one(hint):
    """A function of one argument with this annotation."""

    def body(x): ...

    body.__annotations__ = {"x": hint}
    return body


def z(*shape, dtype="float32"):
    return array(np.zeros(shape, jnp.dtype(dtype)))


def residual(t: Float[Array, "points"], y: Float[Array, "points"]) -> Float[Array, "points"]:
    return t - y


class Linear(eqx.Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, "out"] | None
    width: int = eqx.field(static=True, default=4)
    act: Callable = jnp.tanh


class Model(eqx.Module):
    layers: list[Linear]
    rate: float = 0.5


class Point(NamedTuple):
    x: Float[Array, "n"]
    y: Float[Array, "n"]


class Record(TypedDict):
    x: Float[Array, "n"]
    label: str
