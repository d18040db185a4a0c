"""Dataclasses with arrays that JAX has no tree for.

Such an object would be static, and its arrays constants of the program, which nobody means who puts
data into a class. So one among the arguments is refused with what to write, unless `static` names
its argument.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np

from .._errors import ContractError, Where, shortlist
from .._jax.trees import is_node
from .._values.kinds import LIST, RECORD, TUPLE, kind_of


def fields_with_arrays(value: object) -> list[str]:
    """Fields with arrays of a dataclass that is not a pytree, also in containers and other such
    objects.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, (type, eqx.Module)):
        return []
    if is_node(type(value)):
        return []
    fields = dataclasses.fields(value)
    return [field.name for field in fields if holds_array(getattr(value, field.name, None))]


_SEARCHED = (LIST, TUPLE, RECORD)


def holds_array(value: object) -> bool:
    """Return whether an array is reachable through containers and dataclasses."""
    # User objects may refer to themselves.
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (jax.Array, np.ndarray, jax.ShapeDtypeStruct)):
            return True
        if isinstance(part, Mapping):
            waiting += part.values()
        elif kind_of(part) in _SEARCHED:
            waiting += kind_of(part).parts(part)
    return False


def refuse_records(where: Where, path: str, argument: str, value: object) -> None:
    """Check that a static leaf of the arguments is not a dataclass with arrays.

    Raises:
        ContractError: It is one.
    """
    fields = fields_with_arrays(value)
    if fields:
        name, fix = type(value).__name__, ""
        if path == argument:
            fix = f'; where constants are meant, static="{path}" says so'
        raise ContractError(
            where,
            f"{path!r} is of the class `{name}`, a dataclass with arrays: {shortlist(fields)}.",
            f"JAX has no tree for `{name}`: its arrays would be constants of the program, and each"
            " value a program of its own.",
            tree_fix(type(value), fix),
            code="J213",
        )


def tree_fix(cls: type, more: str = "") -> str:
    """Advice that makes a class a tree of JAX's, with more behind it."""
    name = cls.__name__
    if not dataclasses.is_dataclass(cls):
        return f"make `{name}` an eqx.Module{more}."
    # JAX makes an instance of a registered dataclass from its fields alone, by its `__init__`.
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    others = set(inspect.signature(cls).parameters) - fields
    if others or hasattr(cls, "__post_init__"):
        return f"make `{name}` an eqx.Module{more}."
    return (
        f"write @jax.tree_util.register_dataclass above its @dataclass, or make `{name}` an"
        f" eqx.Module{more}."
    )
