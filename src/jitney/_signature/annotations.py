"""Type hints read into data: the only module that reads jaxtyping's types.

The input is an annotation as Python gives it, the output is a `Hint` (`ArrayHint` and its siblings
in `hints.py`), so that nothing behind this module depends on how jaxtyping, `typing` or NumPy
represent a hint. An annotation that drives no decision becomes an `AnyHint` with the reason.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import difflib
import enum
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard, TypeVar, get_args, get_origin

import jax
import jaxtyping
import numpy as np
import numpy.typing as npt

from .hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Dim,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
)
from .resolving import (
    UNRESOLVED,
    class_scope,
    closure_of,
    innermost,
    raw_annotations,
    resolve,
    resolved_fields,
    rewrites,
)

# jaxtyping hides the type of `PyTree` from type checkers on purpose.
_PyTree: type = jaxtyping.PyTree


def hints_of(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None = None,
) -> tuple[dict[str, Hint], Hint, tuple[str, ...]]:
    """Hints of a function's parameters, the hint of its result, and the names of annotations that
    cannot be resolved (yet).

    `namespace` holds further names, such as the locals of the frame that decorates.
    """
    base, _ = innermost(fn)
    if rewrites(base):
        return _behind_a_transform(base)
    hints: dict[str, Hint] = {}
    unresolved: list[str] = []

    for name, raw, found in _resolved_hints(fn, namespace):
        # If only a part is missing, as in `list["Later"]`, the rest is read.
        if isinstance(found, Missing):
            hints[name] = (
                AnyHint(f"`{raw}` cannot be resolved: {found.error}")
                if isinstance(raw, str)
                else read(raw)
            )
            unresolved.append(name)
        else:
            hints[name] = read(found)

    result = hints.pop("return", AnyHint())

    # A call of a class returns an instance, and not what `__init__` is annotated with.
    if inspect.isclass(fn):
        result = AnyHint()
    return hints, result, tuple(unresolved)


@dataclasses.dataclass(frozen=True)
class Missing:
    """An annotation with an undefined name."""

    # The name of a parameter, or "return".
    of: str
    text: str
    error: Exception
    # A name of the module that is spelled like the missing one.
    near: str | None


def missing_in(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None = None,
) -> list[Missing]:
    """Annotations of a function that cannot be resolved, with the error of each."""
    return [found for _, _, found in _resolved_hints(fn, namespace) if isinstance(found, Missing)]


def _resolved_hints(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None,
) -> Iterator[tuple[str, object, object]]:
    """Triples of a name, its annotation as written, and the resolved annotation or a `Missing`."""
    base, owner = innermost(fn)
    known = getattr(base, "__globals__", {})
    scope = {
        **(namespace or {}),
        **closure_of(base),
        **class_scope(base, owner),
    }

    for name, raw in raw_annotations(base).items():
        try:
            yield name, raw, resolve(raw, known, scope)
        except UNRESOLVED as error:
            text = raw if isinstance(raw, str) else _text(raw)
            near: list[str] = []
            if isinstance(error, NameError) and error.name:
                near = difflib.get_close_matches(error.name, [*known, *scope], n=1)
            yield name, raw, Missing(name, text, error, near[0] if near else None)


def _behind_a_transform(fn: object) -> tuple[dict[str, Hint], Hint, tuple[str, ...]]:
    nothing = AnyHint("a JAX or Equinox transform stands between the annotations and the caller")
    hints: dict[str, Hint] = dict.fromkeys(raw_annotations(fn), nothing)
    return hints, hints.pop("return", AnyHint()), ()


def annotated_names(fn: Callable[..., object]) -> frozenset[str]:
    """Words in the annotations of a function, a superset of the names that they mention."""
    base, _ = innermost(fn)
    words: set[str] = set()
    for raw in raw_annotations(base).values():
        words.update(re.findall(r"\w+", str(raw)))
    return frozenset(words)


def fields_of(cls: type) -> Mapping[str, Hint]:
    """Hints of the annotated fields of a class, inherited ones included, each resolved in the scope
    of the class that declares it.
    """
    hints = _fields_of(cls)
    # A name that is missing may have been defined since.
    if any(map(_is_unresolved, hints.values())):
        return _fields_of.__wrapped__(cls)
    return hints


@functools.lru_cache(maxsize=4096)
def _fields_of(cls: type) -> Mapping[str, Hint]:
    raws = resolved_fields(cls)
    return types.MappingProxyType({name: read(raw) for name, raw in raws.items()})


def _is_unresolved(hint: Hint) -> bool:
    match hint:
        case AnyHint():
            return hint.is_unresolved
        case UnionHint(options=parts) | ContainerHint(items=parts):
            return any(map(_is_unresolved, parts))
        case TreeHint(leaf=leaf):
            return _is_unresolved(leaf)
        case _:
            return False


def read(hint: object) -> Hint:
    """Read one type hint. Never raises for a hint that `typing` and jaxtyping accept."""
    return _read(hint, frozenset())


def _read(hint: object, seen: frozenset[int]) -> Hint:
    """Try the readers in turn, narrow ones first.

    Args:
        hint: A type hint.
        seen: The `id`s of the enclosing aliases and records, which may be recursive.
    """
    if _is_copied_array(hint):
        hint = jax.Array
    return (
        _read_plain(hint)
        or _read_wrapper(hint, seen)
        or _read_jaxtyping(hint, seen)
        or _read_union(hint, seen)
        or _read_container(hint, seen)
        or _read_class(hint)
        or AnyHint(f"`{_text(hint)}` names no axes")
    )


def _is_copied_array(hint: object) -> bool:
    """Return whether a class is a copy of `jax.Array`.

    Its name does not lead to it, so picklers that copy what they do not find by name (cloudpickle)
    copy it where a function of `__main__` is annotated with it.
    """
    return (
        isinstance(hint, type)
        and hint is not jax.Array
        and (hint.__module__, hint.__qualname__) == (jax.Array.__module__, jax.Array.__qualname__)
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
        return AnyHint(f"`{_text(hint)}` is not resolved", is_unresolved=True)
    if _is_equal(hint, jax.typing.DTypeLike) or _is_equal(hint, npt.DTypeLike):
        return StaticHint(hint, "DTypeLike")
    if _is_equal(hint, jax.typing.ArrayLike) or _is_equal(hint, npt.ArrayLike):
        return ArrayHint(
            (_dim("..."),),
            None,
            "ArrayLike",
            array_like=True,
        )
    if get_origin(hint) is Literal or get_origin(hint) is type:
        return StaticHint(_modern(hint), _text(hint))
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
    return _read_array(hint) if issubclass(hint, jaxtyping.AbstractArray) else None


def named_array(axes: str) -> Hint:
    """Hint of an array of any dtype with these axes, in jaxtyping's notation."""
    return _read_array(jaxtyping.Shaped[jax.Array, axes])


def array_of_kind(kind: str, axes: str) -> Hint:
    """Hint of an array such as `Float[Array, "n"]`.

    Args:
        kind: jaxtyping's name for the dtypes (`Float`, `Int32`).
        axes: The axes in jaxtyping's notation.
    """
    return _read_array(getattr(jaxtyping, kind)[jax.Array, axes])


def _read_tree(hint: Any, seen: frozenset[int]) -> Hint:
    if not hasattr(hint, "leaftype"):
        return AnyHint("`PyTree` has no leaf type")
    leaf = _read(hint.leaftype, seen)
    tail = "" if hint.structure is None else f", '{hint.structure}'"
    return TreeHint(leaf, hint.structure, f"PyTree[{leaf.text}{tail}]")


def _read_array(hint: Any) -> Hint:
    if not hasattr(hint, "dim_str"):
        return AnyHint("`AbstractArray` has no shape", is_array=True)
    array_type = jax.Array if _is_copied_array(hint.array_type) else hint.array_type
    if array_type is not Any and not issubclass(
        array_type, jax.Array | np.ndarray | jax.ShapeDtypeStruct
    ):
        return AnyHint(f"`{_text(array_type)}` is neither a JAX nor a NumPy array")

    dims = tuple(_dim(token) for token in hint.dim_str.split())
    # Dtypes that cannot be iterated over are jaxtyping's mark for "any dtype".
    dtypes = tuple(hint.dtypes) if hasattr(hint.dtypes, "__iter__") else None
    return ArrayHint(dims, dtypes, f"{hint.dtype.__name__}[{_text(array_type)}, '{hint.dim_str}']")


def _read_union(hint: object, seen: frozenset[int]) -> Hint | None:
    if get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    members = get_args(hint)

    # A union of array types, as `Float[ArrayLike, ""]`, is one array to jitney.
    array = _one_array(members, seen)
    if array is not None:
        return array
    options = tuple(dict.fromkeys(_several_arrays(members, seen) or _each(members, seen)))

    # One alternative that takes anything makes the union take anything.
    for option in options:
        if isinstance(option, AnyHint):
            why = option.reason or f"`{_text(hint)}` takes anything"
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
    return StaticHint(typing.Union[tuple(statics)], _text(hint), union)  # noqa: UP007


def _one_array(
    members: tuple[object, ...],
    seen: frozenset[int],
) -> ArrayHint | None:
    """The one array hint that a union stands for, or None.

    jaxtyping expands `Float[ArrayLike, ""]` to a union of array types and number types.
    """
    others = [member for member in members if not _is_number_type(member)]
    hints = [_read(member, seen) for member in others]
    arrays = {hint for hint in hints if isinstance(hint, ArrayHint)}
    if len(arrays) != 1 or not all(isinstance(hint, ArrayHint) for hint in hints):
        return None
    array = arrays.pop()
    numbers = [member for member in members if _is_number_type(member)]

    # Number types are folded into the array only if a number can have its rank and dtypes.
    takes_rank_0 = all(dim.variadic for dim in array.dims)
    takes_numbers = takes_rank_0 and all(_number_fits(number, array) for number in numbers)
    if numbers and not takes_numbers:
        return None

    # `int | Int[Array, ""]` was not expanded from `ArrayLike`, which has NumPy's numbers too: the
    # author wrote `int`, which stays static.
    has_python = bool({int, bool} & {*numbers})
    has_numpy = bool({np.number, np.generic} & {*numbers})
    if has_python and not has_numpy:
        return None
    text = array.text
    if len(members) > 1:
        text = re.sub(r"\[\w+,", "[ArrayLike,", text)
    return dataclasses.replace(array, text=text, array_like=bool(numbers))


def _each(members: Iterable[object], seen: frozenset[int]) -> list[Hint]:
    return [_read(member, seen) for member in members]


def _scalar_among(options: Sequence[Hint]) -> ScalarHint | None:
    """The alternative for Python numbers, unless `int` is one of its own."""
    if any(isinstance(option, StaticHint) and option.hint is int for option in options):
        return None
    return next((option for option in options if isinstance(option, ScalarHint)), None)


def _several_arrays(members: Sequence[object], seen: frozenset[int]) -> list[Hint] | None:
    """The array hints of a union of several `Float[ArrayLike, ""]`, which jaxtyping expands to
    array types and number types; None for another union.
    """
    numbers = [member for member in members if _is_number_type(member)]
    if not {np.number, np.generic} & {*numbers}:
        return None
    others = _each((member for member in members if not _is_number_type(member)), seen)
    if not all(isinstance(hint, ArrayHint) or hint == StaticHint(None, "None") for hint in others):
        return None
    return [
        dataclasses.replace(hint, array_like=True)
        if isinstance(hint, ArrayHint) and all(dim.variadic for dim in hint.dims)
        else hint
        for hint in others
    ]


def _is_number_type(hint: object) -> TypeGuard[type]:
    if not isinstance(hint, type):
        return False
    return hint in (bool, int, float, complex) or issubclass(hint, np.generic)


def _number_fits(number: type, array: ArrayHint) -> bool:
    if array.dtypes is None or number not in (bool, int, float, complex):
        return True
    names = (name for name in array.dtypes if isinstance(name, str))
    return any(name.startswith(number.__name__) for name in names)


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
    container = ContainerHint(kind, hints, variadic, _text(hint))
    static = bool(hints) and all(isinstance(item, StaticHint) for item in hints)
    return StaticHint(_modern(hint), _text(hint), container) if static else container


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
        return AnyHint(f"`{_text(hint)}` names no axes", is_array=True)
    if issubclass(kind, _STATIC):
        return StaticHint(_modern(hint), _text(hint))
    if kind in (
        collections.abc.Iterable,
        collections.abc.Iterator,
        collections.abc.Collection,
        collections.abc.Generator,
    ):
        return None
    return ModuleHint(kind, _text(hint))


def _dim(written: str) -> Dim:
    """Parse one token of a shape string by the rules of jaxtyping."""
    if written == "...":
        return Dim(written, "anonymous", variadic=True)

    # Marks (`#`, `*`, `_`, `?`) and a label (`rows=4`) may come in any order before the size.
    marks: set[str] = set()
    rest = written

    while rest:
        if rest[0] in "#*_?":
            marks.add(rest[0])
            rest = rest[1:]
        elif rest.count("=") == 1:
            rest = rest.split("=")[1]
        else:
            break

    marked = functools.partial(
        Dim,
        written,
        broadcast="#" in marks,
        variadic="*" in marks,
        per_leaf="?" in marks,
    )
    if "_" in marks and rest.isidentifier():
        return marked("anonymous")
    if not rest:
        return marked("anonymous")
    if rest.isidentifier():
        return marked("named", name=rest)
    try:
        return marked("fixed", size=int(rest))
    except ValueError:
        return marked("symbolic", expr=rest)


def _text(hint: object) -> str:
    if isinstance(hint, str | typing.ForwardRef):
        return hint if isinstance(hint, str) else hint.__forward_arg__
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint.__name__.rpartition(".")[2]
    return re.sub(r"(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", repr(hint))
