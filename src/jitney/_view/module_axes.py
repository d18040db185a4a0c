"""Axes of the arrays inside Equinox modules, from the annotations of the fields or from a registry
of classes.

A library's class may annotate its field just as `weight: Array`; `register_axes` names the axes.
The classes of `equinox.nn` are registered here.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, replace

import equinox as eqx
from jax.tree_util import tree_flatten_with_path

from .._errors import OptionError, name_fix
from .._jax.trees import Path
from .._owners import public
from .._signature.annotations import fields_of, named_array
from .._signature.hints import Hint
from .view import Leaf, LeafHint, View, leaf_hints


@dataclass(frozen=True)
class InModule:
    """Array of a module, with the annotation of the field that holds it."""

    hint: LeafHint


@public
def register_axes(cls: type, **fields: str) -> None:
    """Name the axes of the fields of a class, as its annotations would:
    `register_axes(eqx.nn.Linear, weight="out in", bias="out")`.

    The names hold for subclasses too, and take precedence over annotations. `...` stands for axes
    without names.

    Args:
        cls: An Equinox module.
        fields: The axes of each field, in jaxtyping's notation.

    Raises:
        OptionError: The class is not a module, has no such field, or the axes cannot be read.
    """
    where = f"jitney.register_axes({getattr(cls, '__name__', cls)})"
    if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
        raise OptionError(
            where,
            "that is not a class of modules.",
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
        if not isinstance(axes, str):
            raise OptionError(
                where,
                f"{name}={axes!r} is not a text.",
                "Axes are written as jaxtyping does.",
                'write "out in".',
                code="J220",
            )

    _registry().setdefault(cls, {}).update(
        {name: named_array(axes) for name, axes in fields.items()}
    )


def axes_in_modules(value: object) -> list[InModule | None]:
    """Field of the innermost module that holds each leaf of a tree; None outside of modules."""
    if isinstance(value, eqx.Module):
        hints = _fields(type(value))
        fields: list[InModule | None] = []
        for path, child in _children(value):
            inner = axes_in_modules(child)
            own = leaf_hints(hints.get(_name(path)), child)
            # An inner module knows its own fields better.
            for deeper, hint in zip(inner, own, strict=True):
                fields.append(deeper or InModule(hint))
        return fields
    children = [child for _, child in _children(value)]
    if len(children) == 1 and children[0] is value:
        return [None]
    leaves: list[InModule | None] = []
    for child in children:
        leaves += axes_in_modules(child)
    return leaves


def with_modules(view: View, fields: list[InModule | None]) -> View:
    """The view with the axes of module fields, for arrays that the signature gives none."""
    leaves: list[Leaf] = []
    for leaf, inside in zip(view.leaves, fields, strict=True):
        if inside is None:
            leaves.append(leaf)
        else:
            hint = inside.hint if leaf.hint is None else leaf.hint
            leaves.append(replace(leaf, hint=hint, in_module=True))
    return View(tuple(leaves))


def _fields(cls: type) -> dict[str, Hint]:
    hints = dict(fields_of(cls))
    # Registrations of a subclass come last, so that they override those of its bases.
    for owner in reversed(cls.__mro__):
        hints |= _registry().get(owner, {})
    return hints


def _children(value: object) -> list[tuple[Path, object]]:
    """Paths and children of a tree node, in JAX's order; a leaf is its own child."""

    def is_child(inner: object) -> bool:
        return inner is not value

    return tree_flatten_with_path(value, is_leaf=is_child)[0]


def _name(path: Path) -> str:
    return getattr(path[0], "name", "") if path else ""


@functools.cache
def _registry() -> dict[type, dict[str, Hint]]:
    """The registry. It starts with the parameters of `equinox.nn`, whose documentation gives their
    shapes; tested with Equinox 0.13.3 to 0.13.8.
    """
    nn = eqx.nn
    conv = {"weight": "out in ...", "bias": "out ..."}
    channels = {"weight": "channels", "bias": "channels"}
    cell = {
        "weight_ih": "gates in",
        "weight_hh": "gates hidden",
        "bias": "gates",
    }
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
