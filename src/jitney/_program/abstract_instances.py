"""Instances of classes whose fields are abstract values, for a program that is not being called.

It stands behind `examples.py`, which makes an abstract value from the annotation of one array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import equinox as eqx

from .._jax.trees import is_node
from .._signature.annotations import fields_of
from .._signature.hints import ContainerHint, Hint, ModuleHint

_Make = Callable[[Hint, str], object]
"""Value of a field, by its annotation and its path; it raises where there is none."""


def has_fields(hint: Hint) -> bool:
    """Return whether the annotated fields of a class say what its instances hold: a NamedTuple, a
    TypedDict, or a dataclass that is a tree and makes its instances from its fields alone. A
    module of Equinox holds parameters, which have values before they have sizes.
    """
    if isinstance(hint, ContainerHint):
        return bool(hint.keys)
    if not isinstance(hint, ModuleHint) or issubclass(hint.cls, eqx.Module):
        return False
    if not dataclasses.is_dataclass(hint.cls):
        return False
    cls, fields = hint.cls, dataclasses.fields(hint.cls)
    parameters = vars(cls).get("__dataclass_params__")
    return (
        is_node(cls)
        and parameters is not None
        and parameters.init
        and not hasattr(cls, "__post_init__")
        and all(field.init and "converter" not in field.metadata for field in fields)
    )


def abstract_instance(hint: ContainerHint | ModuleHint, path: str, make: _Make) -> object:
    """Instance of a class that `has_fields`. A field with a default has its default."""
    if isinstance(hint, ContainerHint):
        kind: Callable[..., object] = hint.kind
        defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
        names = dict(zip(hint.keys, hint.items, strict=True))
        dot = "[{!r}]" if issubclass(hint.kind, dict) else ".{}"
        return kind(
            **{
                name: defaults[name] if name in defaults else make(inner, path + dot.format(name))
                for name, inner in names.items()
                if name not in hint.optional
            }
        )

    cls: Callable[..., object] = hint.cls
    hints = fields_of(hint.cls)
    values: dict[str, object] = {}
    for field in dataclasses.fields(hint.cls):
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if not has_default:
            values[field.name] = make(hints[field.name], f"{path}.{field.name}")
    return cls(**values)
