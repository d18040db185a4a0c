"""Axes of the arrays inside instances of classes, from the annotations of the fields or from a
registry of classes.

The class is any that JAX takes apart: an Equinox module, a registered dataclass, a NamedTuple.
A library's class may annotate its field just as `weight: Array`; `register_axes` names the axes.
The classes of `equinox.nn` are registered here, for `shard` alone: their users did not write those
names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import equinox as eqx
from jax.tree_util import tree_flatten_with_path

from .._errors import OptionError, name_fix
from .._jax.trees import Path
from .._owners import public
from .._signature.annotations import fields_of
from .._signature.array_hints import named_array
from .._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Dim,
    Hint,
    ModuleHint,
    TreeHint,
    UnionHint,
)
from .._values.attributes import attributes_of
from .._values.static_values import Opaque
from .view import Leaf, LeafHint, View, leaf_hints


@dataclass(frozen=True)
class InField:
    """Array in an instance of a class, with the annotation of the field that holds it."""

    hint: LeafHint
    # True inside an Equinox module: `"fsdp"` shards these.
    in_module: bool
    # False if jitney named the axes itself, in its registry.
    by_author: bool = True

    @property
    def for_options(self) -> LeafHint:
        """The annotation for all options but `shard`: a name of jitney's own is none of the user's
        axes, and only the rank counts.
        """
        if self.by_author or not isinstance(self.hint, ArrayHint):
            return self.hint
        dims = (Dim("_", "anonymous", variadic=dim.variadic) for dim in self.hint.dims)
        return replace(self.hint, dims=tuple(dims))


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

    _registry().setdefault(cls, {}).update(_hints(fields))


def axes_in_fields(value: object) -> list[InField | None]:
    """Field of the innermost instance that holds each leaf of a tree; None where no annotated field
    does.
    """
    children = _children(value)
    if len(children) == 1 and children[0][1] is value:
        return [None]
    hints, in_module = _fields(type(value)), isinstance(value, eqx.Module)
    names = _names(value, children, hints) if hints else [""] * len(children)

    fields: list[InField | None] = []
    for name, (_, child) in zip(names, children, strict=True):
        hint, by_author = hints.get(name, (None, True))
        own = leaf_hints(hint, child)
        # An instance further in knows its own fields better.
        for inner, outer in zip(axes_in_fields(child), own, strict=True):
            found = InField(outer, in_module, by_author)
            if inner is not None:
                found = replace(
                    inner if inner.hint else found, in_module=in_module | inner.in_module
                )
            if isinstance(found.hint, ArrayHint) and found.hint.has_braces:
                found = replace(found, hint=_fill_in_sizes(found.hint, value))
            fields.append(found if found.hint is not None or found.in_module else None)
    return fields


def with_fields(view: View, fields: list[InField | None]) -> View:
    """The view with the axes of fields, for arrays that the signature gives none."""
    leaves: list[Leaf] = []
    for leaf, inside in zip(view.leaves, fields, strict=True):
        if inside is None:
            leaves.append(leaf)
        else:
            hint = inside.hint if leaf.hint is None else leaf.hint
            leaves.append(replace(leaf, hint=hint, in_module=inside.in_module))
    return View(tuple(leaves))


def axes_of_class(cls: type) -> frozenset[str]:
    """Axes that the fields of a class name, and those of the classes that its fields name."""
    names: set[str] = set()
    _declare(ModuleHint(cls, ""), names, set())
    return frozenset(names)


def declared_axes(hints: Iterable[Hint]) -> tuple[frozenset[str], bool]:
    """Axes that annotations name, those of the fields of their classes too; and whether a value may
    have more of them: one without annotation, or an instance of a subclass.
    """
    names: set[str] = set()
    opens = [_declare(hint, names, set()) for hint in hints]
    return frozenset(names), any(opens)


def axes_of_instances(value: object) -> frozenset[str]:
    """Axes that the classes of the instances in a tree name."""
    names = set(axes_of_class(type(value)))
    for _, child in _children(value):
        if child is not value:
            names |= axes_of_instances(child)
    return frozenset(names)


def _declare(hint: Hint, names: set[str], seen: set[type]) -> bool:
    """Add the axes that an annotation names. Return whether its values may have others."""
    match hint:
        case ArrayHint():
            names.update(hint.names, hint.mentions)
            return False
        case UnionHint(options=parts) | ContainerHint(items=parts):
            opens = [_declare(part, names, seen) for part in parts]
            return any(opens)
        case TreeHint(leaf=leaf):
            return _declare(leaf, names, seen)
        case ModuleHint(cls=cls):
            if cls not in seen:
                seen.add(cls)
                for field, by_author in _fields(cls).values():
                    if by_author:
                        _declare(field, names, seen)
            return True
        case AnyHint(is_array=is_array):
            return not is_array
        case _:
            return False


def _fields(cls: type) -> Mapping[str, tuple[Hint, bool]]:
    """Annotations of the fields of a class, and whether they are those of its author or of a user
    of jitney.
    """
    hints = {name: (hint, True) for name, hint in fields_of(cls).items()}
    # Registrations of a subclass come last, so that they override those of its bases.
    for owner in reversed(cls.__mro__):
        hints |= {name: (hint, False) for name, hint in _known().get(owner, {}).items()}
        hints |= {name: (hint, True) for name, hint in _registry().get(owner, {}).items()}
    return hints


def _children(value: object) -> list[tuple[Path, object]]:
    """Paths and children of a tree node, in JAX's order; a leaf is its own child."""

    def is_child(inner: object) -> bool:
        return inner is not value

    return tree_flatten_with_path(value, is_leaf=is_child)[0]


def _names(
    value: object,
    children: Sequence[tuple[Path, object]],
    hints: Mapping[str, tuple[Hint, bool]],
) -> list[str]:
    """Field of each child; "" where it has none.

    A class may be registered without names: then the field is the attribute that is the child.
    """
    names: list[str] = []
    for path, child in children:
        key = path[0] if path else None
        name = getattr(key, "name", getattr(key, "key", None))
        if name not in hints:
            own = [name for name, held in attributes_of(value).items() if held is child]
            alike = {hints.get(name) for name in own}
            name = own[0] if len(alike) == 1 else ""
        names.append(str(name))
    return names


def _fill_in_sizes(hint: ArrayHint, instance: object) -> ArrayHint:
    """The hint with sizes in braces, such as `{width}` or `{self.width}`, read off the instance
    whose field it annotates.
    """
    held = {
        name: value.value if isinstance(value, Opaque) else value
        for name, value in attributes_of(instance).items()
    }
    return hint.fill_in_sizes({**held, "self": SimpleNamespace(**held)})


def _hints(fields: Mapping[str, str]) -> dict[str, Hint]:
    return {name: named_array(axes) for name, axes in fields.items()}


@functools.cache
def _registry() -> dict[type, dict[str, Hint]]:
    """The fields that users have registered."""
    return {}


@functools.cache
def _known() -> dict[type, dict[str, Hint]]:
    """The parameters of `equinox.nn`, whose documentation gives their shapes; tested with Equinox
    0.13.3 to 0.13.8.
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
    return {cls: _hints(fields) for cls, fields in known.items()}
