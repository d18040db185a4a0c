"""Instances of classes whose fields are abstract values, for a program that is not being called.

It stands behind `examples.py`, which makes an abstract value from the annotation of one array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .._jax.trees import is_node
from .._signature.annotations import fields_of
from .._signature.hints import ContainerHint, Hint, ModuleHint

_Make = Callable[[Hint, str], object]
"""Value of a field, by its annotation and its path; it raises where there is none."""


def has_fields(hint: Hint) -> bool:
    """Return whether the annotated fields of a class say what its instances hold: a NamedTuple, a
    TypedDict, or a dataclass that is a tree and makes its instances from its fields alone.
    """
    if isinstance(hint, ContainerHint):
        return bool(hint.keys)
    if not isinstance(hint, ModuleHint) or not dataclasses.is_dataclass(hint.cls):
        return False
    own: Any = hint.cls
    fields = dataclasses.fields(own)
    return (
        is_node(own)
        and own.__dataclass_params__.init
        and not hasattr(own, "__post_init__")
        and all(field.init and "converter" not in field.metadata for field in fields)
    )


def abstract_instance(hint: ContainerHint | ModuleHint, path: str, make: _Make) -> object:
    """Instance of a class that `has_fields`. A field with a default has
    its default.
    """
    if isinstance(hint, ContainerHint):
        kind: Any = hint.kind
        defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
        names = dict(zip(hint.keys, hint.items, strict=True))
        dot = "[{!r}]" if issubclass(kind, dict) else ".{}"
        return kind(
            **{
                name: defaults[name] if name in defaults else make(inner, path + dot.format(name))
                for name, inner in names.items()
                if name not in hint.optional
            }
        )

    cls: Any = hint.cls
    hints = fields_of(cls)
    values: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if not has_default:
            values[field.name] = make(hints[field.name], f"{path}.{field.name}")
    return cls(**values)
