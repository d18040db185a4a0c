"""Type hints read into data: aliases, unions, containers, records and classes.

    float, Float[Array, "n"]           `ScalarHint`, `ArrayHint`: traced (`array_hints.py`)
    int, str, Literal["a"]             `StaticHint`
    list[Float[Array, "n"]], a module  `ContainerHint`, `ModuleHint`: their parts are read in turn
    Sequence["Later"]                  the part that cannot be resolved (yet) is an `AnyHint`

A hint that drives no decision becomes an `AnyHint` with the reason.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import jax
import jaxtyping
import numpy as np
import numpy.typing as npt

from .array_hints import (
    is_copied_array,
    one_array,
    read_array,
    read_dim,
    several_arrays,
)
from .hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
    hint_text,
)
from .resolving import resolved_fields

# jaxtyping hides the type of `PyTree` from type checkers on purpose.
_PyTree: type = jaxtyping.PyTree


def read(hint: object) -> Hint:
    """Read one type hint. Never raises for a hint that `typing` and jaxtyping accept."""
    return _read(hint, frozenset())


def _read(hint: object, seen: frozenset[int]) -> Hint:
    """Try the readers in turn, narrow ones first.

    Args:
        hint: A type hint.
        seen: The `id`s of the enclosing aliases and records, which may be recursive.
    """
    if is_copied_array(hint):
        hint = jax.Array
    return (
        _read_plain(hint)
        or _read_wrapper(hint, seen)
        or _read_jaxtyping(hint, seen)
        or _read_union(hint, seen)
        or _read_container(hint, seen)
        or _read_class(hint)
        or AnyHint(f"`{hint_text(hint)}` names no axes")
    )


def _read_plain(hint: object) -> Hint | None:
    """Hints that contain no other hint."""
    if hint is inspect.Parameter.empty or hint is Any or hint is object:
        return AnyHint()
    if hint is None or hint is types.NoneType:
        return StaticHint(None, "None")
    if hint is float or hint is complex:
        return ScalarHint("float" if hint is float else "complex")
    if isinstance(hint, str | typing.ForwardRef):
        return AnyHint(f"`{hint_text(hint)}` is not resolved", is_unresolved=True)
    if _is_equal(hint, jax.typing.DTypeLike) or _is_equal(hint, npt.DTypeLike):
        return StaticHint(hint, "DTypeLike")
    if _is_equal(hint, jax.typing.ArrayLike) or _is_equal(hint, npt.ArrayLike):
        return ArrayHint(
            (read_dim("..."),),
            None,
            "ArrayLike",
            array_like=True,
        )
    if get_origin(hint) is Literal or get_origin(hint) is type:
        return StaticHint(_modern(hint), hint_text(hint))
    return None


def _modern(hint: object) -> object:
    """`list[int]` for `typing.List[int]`, since beartype warns about the old form."""
    origin, args = get_origin(hint), get_args(hint)
    # `Callable[[X], Y]` has a list as its first argument, and stays as it is.
    if not isinstance(origin, type) or not args or isinstance(args[0], list):
        return hint
    return types.GenericAlias(origin, tuple(_modern(arg) for arg in args))


def _is_class(hint: object) -> bool:
    return isinstance(hint, type)


def _is_equal(hint: object, other: object) -> bool:
    return type(hint) is type(other) and bool(hint == other)


def _read_wrapper(hint: Any, seen: frozenset[int]) -> Hint | None:
    """Hints that stand for another one: aliases, `Annotated`, `NewType`, type variables."""
    origin = get_origin(hint)
    if origin in (
        typing.Annotated,
        typing.Final,
        typing.ClassVar,
        typing.Required,
        typing.NotRequired,
    ):
        return _read(get_args(hint)[0], seen)

    if isinstance(hint, typing.NewType):
        return _read(hint.__supertype__, seen)

    if isinstance(hint, TypeVar):
        # The constraints are a tuple, which `Union[...]` takes and `|` does not.
        either = typing.Union[hint.__constraints__] if hint.__constraints__ else None  # noqa: UP007
        stands_for = hint.__bound__ or either
        if stands_for is None:
            return AnyHint(f"type variable `{hint}` has no bound")
        return _read(stands_for, seen)

    alias = hint if origin is None else origin

    # The type is typing's own on Python 3.12, and typing_extensions' before.
    if type(alias).__name__ == "TypeAliasType":
        if id(alias) in seen:
            return AnyHint(f"`{alias}` contains itself")
        return _read(alias.__value__, seen | {id(alias)})
    return None


def _read_jaxtyping(hint: object, seen: frozenset[int]) -> Hint | None:
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return None
    if issubclass(hint, _PyTree):
        return _read_tree(hint, seen)
    if issubclass(hint, jaxtyping.AbstractDtype):
        return AnyHint(f"`{hint.__name__}` has no shape", is_array=True)
    return read_array(hint) if issubclass(hint, jaxtyping.AbstractArray) else None


def _read_tree(hint: Any, seen: frozenset[int]) -> Hint:
    if not hasattr(hint, "leaftype"):
        return AnyHint("`PyTree` has no leaf type")
    leaf = _read(hint.leaftype, seen)
    tail = "" if hint.structure is None else f", '{hint.structure}'"
    return TreeHint(leaf, hint.structure, f"PyTree[{leaf.text}{tail}]")


def _read_union(hint: object, seen: frozenset[int]) -> Hint | None:
    if get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    members = get_args(hint)
    hints = [_read(member, seen) for member in members]

    # A union of array types, as `Float[ArrayLike, ""]`, is one array to jitney.
    array = one_array(members, hints)
    if array is not None:
        return array
    options = tuple(dict.fromkeys(several_arrays(members, hints) or hints))

    # One alternative that takes anything makes the union take anything.
    for option in options:
        if isinstance(option, AnyHint):
            why = option.reason or f"`{hint_text(hint)}` takes anything"
            return AnyHint(why, number=_scalar_among(options))

    if len(options) == 1:
        return options[0]
    union = UnionHint(options, " | ".join(option.text for option in options))

    # Only a union of static alternatives is static. beartype checks the union as a whole, and the
    # parts are kept for the contract.
    statics = [option.hint for option in options if isinstance(option, StaticHint)]
    if len(statics) < len(options):
        return union

    # The alternatives are a tuple, which `Union[...]` takes and `|` does not.
    return StaticHint(typing.Union[tuple(statics)], hint_text(hint), union)  # noqa: UP007


def _scalar_among(options: Sequence[Hint]) -> ScalarHint | None:
    """The alternative for Python numbers, unless `int` is one of its own."""
    if any(isinstance(option, StaticHint) and option.hint is int for option in options):
        return None
    return next((option for option in options if isinstance(option, ScalarHint)), None)


_VARIADIC = (list, tuple, collections.abc.Sequence, collections.abc.MutableSequence)
_MAPPINGS = (
    dict,
    collections.OrderedDict,
    collections.defaultdict,
    collections.abc.Mapping,
    collections.abc.MutableMapping,
)


def _read_container(hint: object, seen: frozenset[int]) -> Hint | None:
    kind: Any = get_origin(hint) or hint
    args = get_args(hint)
    if not _is_class(kind):
        return None

    variadic = True
    if kind in _MAPPINGS:
        items = (args[1],) if len(args) == 2 else (object,)
    elif kind is tuple and args and Ellipsis not in args:
        items = () if args == ((),) else args
        variadic = False
    elif kind in _VARIADIC:
        # `tuple[()]` has an origin and no arguments. `typing.Tuple` has that too, and means any
        # tuple.
        is_empty = (
            kind is tuple and not args and get_origin(hint) is not None and hint is not typing.Tuple  # noqa: UP006
        )
        items = () if is_empty else (args[:1] or (object,))
        variadic = not is_empty
    elif typing.is_typeddict(kind) or _is_namedtuple(kind):
        return _read_record(kind, seen)
    else:
        return None

    hints = tuple(_read(item, seen) for item in items)
    container = ContainerHint(kind, hints, variadic, hint_text(hint))
    static = bool(hints) and all(isinstance(item, StaticHint) for item in hints)
    return StaticHint(_modern(hint), hint_text(hint), container) if static else container


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _read_record(kind: type, seen: frozenset[int]) -> Hint:
    """Hint of a NamedTuple or a TypedDict."""
    if id(kind) in seen:
        return AnyHint(f"`{kind.__name__}` contains itself")
    raws = resolved_fields(kind)
    names: tuple[str, ...] = getattr(kind, "_fields", tuple(raws))
    inside = seen | {id(kind)}
    hints = tuple(_read(raws.get(name, object), inside) for name in names)
    kind_of_value = dict if typing.is_typeddict(kind) else kind
    return ContainerHint(
        kind_of_value,
        hints,
        variadic=False,
        text=kind.__name__,
        keys=names,
        optional=getattr(kind, "__optional_keys__", frozenset()),
    )


_STATIC = (
    int,
    str,
    bytes,
    enum.Enum,
    type,
    np.dtype,
    slice,
    range,
    set,
    frozenset,
    types.ModuleType,
    types.EllipsisType,
)


def _read_class(hint: object) -> Hint | None:
    kind: Any = get_origin(hint) or hint
    if not _is_class(kind) or kind in (typing.Generic, typing.Protocol):
        return None
    if issubclass(kind, jax.Array | np.ndarray | jax.ShapeDtypeStruct | np.generic):
        return AnyHint(f"`{hint_text(hint)}` names no axes", is_array=True)
    if issubclass(kind, _STATIC):
        return StaticHint(_modern(hint), hint_text(hint))
    if kind in (
        collections.abc.Iterable,
        collections.abc.Iterator,
        collections.abc.Collection,
        collections.abc.Generator,
    ):
        return None
    return ModuleHint(kind, hint_text(hint))
