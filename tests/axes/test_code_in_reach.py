"""Code that a call may run, known before it runs (`_axes/symbolic/code_in_reach.py`)."""

import functools
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._axes.symbolic import dim_hooks
from jitney._axes.symbolic.code_in_reach import reads_no_size
from jitney._axes.symbolic.executed_code import observe_code

from ._cases import CASES

X = jnp.arange(5.0)


def _scale(x: Any) -> Any:
    return 2.0 * x


def _plain(x: Any) -> Any:
    return jnp.sum(_scale(x)) / x.shape[0]


mapped = jax.vmap(_scale)
jitted = jax.jit(_scale)
partly = functools.partial(jnp.add, 1.0)
table: dict[str, Any] = {"scale": _scale, "names": ["a", "b"]}


def _nested(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return mapped(jitted(y)) + partly(y) + table["scale"](y)

    return jax.lax.map(lambda y: jnp.cos(y), inner(x)) @ jnp.linalg.inv(jnp.eye(x.shape[0]))


def _by_type(x: Any) -> Any:
    return x + (type(x.shape[0]) is int)


def _by_identity(x: Any) -> Any:
    return x + (x.shape[0] is X.shape[0])


def _by_operator(x: Any) -> Any:
    return x + operator.is_(x.shape[0], 5)


def _by_error(x: Any) -> Any:
    try:
        return x + float(x.shape[0])
    except TypeError:
        return x


def _by_import(x: Any) -> Any:
    import inspect

    return x + inspect.isclass(x.shape[0])


def _by_class(x: Any) -> Any:
    class Inside:
        known = type

    return x + (Inside.known(x.shape[0]) is int)


def _through(x: Any) -> Any:
    return _by_type(x)


through_map = jax.vmap(_by_type)
through_jit = jax.jit(_by_type)
through_partial = functools.partial(_by_type)
through_table = {"deep": [_by_type]}


def _mapped(x: Any) -> Any:
    return through_map(x)


def _jitted(x: Any) -> Any:
    return through_jit(x)


def _partly(x: Any) -> Any:
    return through_partial(x)


def _looked_up(x: Any) -> Any:
    return through_table["deep"][0](x)


def _closed(looks: Any) -> Any:
    def closes(x: Any) -> Any:
        return looks(x)

    return closes


def _default(x: Any, looks: Any = _by_type) -> Any:
    return looks(x)


class Scaled(eqx.Module):
    by: float

    def __call__(self, x: Any) -> Any:
        return self.by * x


scaled = Scaled(2.0)


class Looking(functools.partial[Any]):
    def __call__(self, x: Any) -> Any:
        return _by_type(x)


looking = Looking(_scale)


def _with_module(x: Any) -> Any:
    return scaled(x)


def _any_attribute(x: Any, name: str = "sum") -> Any:
    return getattr(x, name)()


@pytest.mark.parametrize("fn", [_plain, _nested, _closed(_scale), jnp.sum, jitted, mapped])
def test_plain_functions_are_known(fn: Any):
    """Modules, numbers, containers and other plain functions are all that they name."""
    assert reads_no_size(fn, [X, 1.0, "text", (None, [2])])


@pytest.mark.parametrize(
    "fn",
    [
        _by_type,
        _by_identity,
        _by_operator,
        _by_error,
        _by_import,
        _by_class,
        _through,
        _mapped,
        _jitted,
        _partly,
        _looked_up,
        _closed(_by_type),
        _default,
        _with_module,
        _any_attribute,
        scaled,
        _closed(scaled),
        _closed(looking),
    ],
)
def test_what_may_look_at_a_size_is_observed(fn: Any):
    """A look unseen, or an object whose methods run without being named."""
    assert not reads_no_size(fn, [X])


@pytest.mark.parametrize("value", [scaled, _by_type, type, np.array([type], object), [scaled]])
def test_arguments_are_in_reach(value: Any):
    """A function may call what it is given."""
    assert reads_no_size(_plain, [X])
    assert not reads_no_size(_plain, [X, value])


def test_a_replaced_member_of_a_module_is_in_reach(monkeypatch: pytest.MonkeyPatch):
    """`jnp.sum` of the user's own runs the user's code."""
    monkeypatch.setattr(jnp, "sum", _by_type)
    assert not reads_no_size(_plain, [X])


def test_the_observer_reports_nothing_of_known_code():
    """The bodies of the table: where all code is known, observing it shows no look either."""
    known = [case for case in CASES if reads_no_size(case.fn, [])]
    reports: list[str] = []
    for case in known[::4]:
        with observe_code(reports.append):
            jax.make_jaxpr(case.flat)(*case.avals(6))
    assert len(known) > 20
    assert not reports


def test_a_plain_body_is_not_observed(monkeypatch: pytest.MonkeyPatch):
    """Only the body whose code is not known is observed while it is traced."""
    observed: list[str] = []

    def observe(report: Any) -> Any:
        observed.append("once")
        return observe_code(report)

    monkeypatch.setattr(dim_hooks, "observe_code", observe)

    @jitney.optimize(pad={"n": [8]})
    def plain(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(_scale(x))

    @jitney.optimize(pad={"n": [8]})
    def other(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(scaled(x))

    assert float(plain(X)) == 20.0
    assert not observed
    assert float(other(X)) == 20.0
    assert observed == ["once"]
