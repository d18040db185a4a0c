"""Which axes the arrays inside Equinox modules have: from the annotations of the fields, or as
registered for a class.

A field of a class that one does not own says `weight: Array`; `register_axes` gives it names. All
of `equinox.nn` comes registered.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx

from .._errors import OptionError, name_fix
from .._jax.trees import is_a, tree_flatten_with_path, type_of
from .._owners import public
from .._signature.annotations import fields_of, named_array
from .._signature.hints import Hint
from .view import LeafHint, View, leaf_hints

_flatten_with_path: Any = tree_flatten_with_path


@dataclass(frozen=True)
class InModule:
    """One array of a module, and the annotation of the field that holds it."""

    hint: LeafHint


@public
def register_axes(cls: type, **fields: str) -> None:
    """Name the axes of the fields of a class, as its annotations would:
    `register_axes(eqx.nn.Linear, weight="out in", bias="out")`.

    It holds for subclasses too, and comes before annotations. `...` stands for axes without names.

    Args:
        cls: An Equinox module.
        fields: The axes of each field, in jaxtyping's notation.

    Raises:
        OptionError: The class is no module, has no such field, or the axes cannot be read.
    """
    where = f"jitney.register_axes({getattr(cls, '__name__', cls)})"
    if not (is_a(cls, type) and issubclass(cls, eqx.Module)):
        raise OptionError(
            where,
            "that is no class of modules.",
            "Axes are registered for an Equinox module.",
            "pass the class.",
            code="J220",
        )
    known = [field.name for field in dataclasses.fields(cls)]
    for name, axes in fields.items():
        if name not in known:
            what = f"it has no field {name!r}."
            raise OptionError(
                where,
                what,
                f"Its fields are {', '.join(known)}.",
                name_fix(name, known),
                code="J202",
            )
        if not is_a(axes, str):
            raise OptionError(
                where,
                f"{name}={axes!r} is no text.",
                "Axes are written as jaxtyping does.",
                'write "out in".',
                code="J220",
            )
    _registered().setdefault(cls, {}).update(
        {name: named_array(axes) for name, axes in fields.items()}
    )


def axes_in_modules(value: Any) -> list[InModule | None]:
    """For each leaf of a tree, the field of the innermost module that holds it; None outside
    modules.
    """
    if is_a(value, eqx.Module):
        hints = _fields(type_of(value))
        fields: list[InModule | None] = []
        for path, child in _children(value):
            inner = axes_in_modules(child)
            own = leaf_hints(hints.get(_name(path)), child)
            fields += [deeper or InModule(hint) for deeper, hint in zip(inner, own, strict=True)]
        return fields
    children = _children(value)
    if len(children) == 1 and children[0][1] is value:
        return [None]
    return [leaf for _, child in children for leaf in axes_in_modules(child)]


def with_modules(view: View, fields: list[InModule | None]) -> View:
    """A view whose arrays in modules have the axes of their fields, where the signature gives them
    none.
    """
    leaves = zip(view.leaves, fields, strict=True)
    return View(
        tuple(
            leaf
            if inside is None
            else replace(leaf, hint=inside.hint if leaf.hint is None else leaf.hint, in_module=True)
            for leaf, inside in leaves
        )
    )


def _fields(cls: type) -> dict[str, Hint]:
    hints = dict(fields_of(cls))
    for owner in reversed(cls.__mro__):
        hints |= _registered().get(owner, {})
    return hints


def _children(value: Any) -> list[tuple[Any, Any]]:
    """What a tree node holds, in the order in which JAX flattens it; a leaf holds itself."""

    def is_child(inner: Any) -> bool:
        return inner is not value

    return _flatten_with_path(value, is_leaf=is_child)[0]


def _name(path: Any) -> str:
    return getattr(path[0], "name", "") if path else ""


@functools.cache
def _registered() -> dict[type, dict[str, Hint]]:
    """What is registered; at first the parameters of `equinox.nn`, as its documentation gives their
    shapes. Tried on Equinox 0.13.3 to 0.13.8.
    """
    nn: Any = eqx.nn
    conv = {"weight": "out in ...", "bias": "out ..."}
    channels = {"weight": "channels", "bias": "channels"}
    cell = {"weight_ih": "gates in", "weight_hh": "gates hidden", "bias": "gates"}
    known = {
        nn.Linear: {"weight": "out in", "bias": "out"},
        nn.Conv: conv,
        nn.ConvTranspose: conv,
        nn.Embedding: {"weight": "vocabulary embedding"},
        nn.GroupNorm: channels,
        nn.BatchNorm: channels,
        nn.GRUCell: {**cell, "bias_n": "hidden"},
        nn.LSTMCell: cell,
    }
    return {
        cls: {name: named_array(axes) for name, axes in fields.items()}
        for cls, fields in known.items()
    }
