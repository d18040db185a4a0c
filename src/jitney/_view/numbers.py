"""Python numbers among the arguments that are data, though no annotation says so.

`jax.jit` traces them, so that a learning rate which falls, or the step of a training state, is no
new program each time. A number is traced where it is data most of the time:

    f(x, 0.1)                      a float or complex number that is an argument
    f(x, {"lr": 0.1})              or a leaf of a dict, a list, a tuple or a frozen dataclass
    f(TrainState(step=3, ...))     any number that is a leaf of a registered class

It stays static where an annotation says `int`, in a field of an Equinox module, which chooses by
what it declares, and for `int` elsewhere, which mostly is a size or an option. Whether the body can
be traced with it is found out by its first trace (`_program/tracing/held_numbers.py`).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter

import equinox as eqx

from .._contract.contract import Contract
from .._signature.hints import AnyHint, ContainerHint, Hint, StaticHint, TreeHint, UnionHint
from .._values.static_values import Opaque
from .nodes import children, is_leaf
from .taken_apart import TakenApart

_REAL = (float, complex)
_CONTAINERS = (list, dict, OrderedDict, defaultdict)


def data_numbers(
    contract: Contract, values: Sequence[object], leaves: Sequence[object]
) -> frozenset[int]:
    """Indices of the leaves that are data by this rule, among all leaves of the arguments."""
    if not any(type(leaf) in (*_REAL, int) for leaf in leaves):
        return frozenset()
    flags: list[bool] = []
    for parameter, value in zip(contract.parameters, values, strict=True):
        if parameter.kind is Parameter.VAR_KEYWORD and isinstance(value, Mapping):
            parts: Sequence[object] = [value[name] for name in sorted(value)]
        elif parameter.kind is Parameter.VAR_POSITIONAL and isinstance(value, tuple):
            parts = value
        else:
            parts = (value,)
        for part in parts:
            flags += _Walk().flags(parameter.hint, part)
    return frozenset(i for i, is_data in enumerate(flags) if is_data)


@dataclass(frozen=True)
class _Walk:
    """What stands around a part of an argument."""

    is_in_module: bool = False
    is_in_registered: bool = False

    def flags(self, hint: Hint | None, value: object) -> Iterator[bool]:
        """Yield, for each leaf of `value` in JAX's order, whether it is data by this rule."""
        if value is None:
            return
        if is_leaf(value):
            if isinstance(hint, TreeHint):
                hint = hint.leaf
            yield self._is_data(hint, value)
            return
        if isinstance(hint, UnionHint):
            hint = next((each for each in hint.options if isinstance(each, ContainerHint)), None)
        if isinstance(value, TakenApart):
            # Its class is its annotation, and says nothing of the numbers in it.
            hint = None
        inside = self._entered(value)
        for part, of in zip(children(value), _hints(hint, value), strict=True):
            yield from inside.flags(of, part)

    def _entered(self, node: object) -> _Walk:
        if isinstance(node, eqx.Module):
            return replace(self, is_in_module=True)
        if type(node) in _CONTAINERS or isinstance(node, (tuple, TakenApart)):
            return self
        return replace(self, is_in_registered=True)

    def _is_data(self, hint: Hint | None, leaf: object) -> bool:
        # An annotation decides by itself.
        if isinstance(leaf, Opaque) or not (hint is None or isinstance(hint, AnyHint)):
            return False
        if self.is_in_module:
            return False
        return type(leaf) in _REAL or (type(leaf) is int and self.is_in_registered)


def _hints(hint: Hint | None, node: object) -> Sequence[Hint | None]:
    """Hints of the children of a node, as far as that of the node says."""
    parts = children(node)
    nothing: Sequence[Hint | None] = [None] * len(parts)
    if isinstance(hint, (TreeHint, StaticHint)):
        return [hint] * len(parts)
    if not isinstance(hint, ContainerHint):
        return nothing
    if hint.variadic:
        return list(hint.items[:1]) * len(parts)
    if isinstance(node, Mapping):
        known = dict(zip(hint.keys, hint.items, strict=True))
        # JAX flattens a dict in the order of its sorted keys, and an OrderedDict in its own.
        return [known.get(key) for key in (node if type(node) is OrderedDict else sorted(node))]
    return hint.items if len(hint.items) == len(parts) else nothing
