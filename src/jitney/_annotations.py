"""Read a type hint as data: which axes, which dtypes, traced or static.

This is the only door to jaxtyping: everything behind it sees `ArrayHint` and its siblings. It stands before `_sizes.py`
and `_contract.py` because those compare values with what is read here.
"""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpy.typing as npt

_PyTree: type = jaxtyping.PyTree  # pyright: ignore  # jaxtyping hides its type from type checkers on purpose
_NARROW = ("float4", "float8", "int2", "int4", "uint2", "uint4")


@dataclass(frozen=True)
class Dim:
    """One token of a shape string. `rows=4` is fixed 4; `...` is anonymous and variadic."""

    text: str
    kind: Literal["named", "fixed", "symbolic", "anonymous"]
    name: str | None = None
    size: int | None = None
    expr: str | None = None
    broadcast: bool = False  # `#n`
    variadic: bool = False  # `*n` or `...`
    per_leaf: bool = False  # `?n`


@dataclass(frozen=True)
class ArrayHint:
    """`Float[Array, "n"]`: a traced array. `dtypes` is None where any dtype fits."""

    dims: tuple[Dim, ...]
    dtypes: tuple[str | re.Pattern[str], ...] | None
    text: str = field(compare=False)
    array_like: bool = False  # Python numbers fit too, as in `Float[ArrayLike, ""]`

    @property
    def rank(self) -> int | None:
        """Number of axes, or None where `*name` or `...` leaves it open."""
        return None if any(dim.variadic for dim in self.dims) else len(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """Axes that an array binds, in order, without repeats."""
        return tuple(dict.fromkeys(dim.name for dim in self.dims if dim.name is not None))

    @property
    def mentions(self) -> tuple[str, ...]:
        """Axes that symbolic sizes such as `n+1` refer to."""
        found = (name for dim in self.dims if dim.expr is not None for name in _names_in(dim.expr))
        return tuple(dict.fromkeys(found))

    @property
    def exact_dtype(self) -> np.dtype[Any] | None:
        """The one dtype that fits, if there is just one (`Float32`, `Bool`)."""
        found = {_named_dtype(name) for name in self.dtypes or (None,)}
        return found.pop() if len(found) == 1 else None

    def allows(self, dtype: Any) -> bool:
        """Whether jaxtyping takes an array of this dtype."""
        if self.dtypes is None:
            return True
        name = dtype_name(dtype)
        return any(allowed == name if isinstance(allowed, str) else allowed.match(name) for allowed in self.dtypes)

    @property
    def allowed(self) -> str:
        """The dtypes that fit, in words; the exotic narrow ones are left out where there are many."""
        names = [name if isinstance(name, str) else name.pattern for name in self.dtypes or ("any dtype",)]
        wide = [name for name in names if not name.startswith(_NARROW)]
        return ", ".join(wide) + " and narrower ones" if 0 < len(wide) < len(names) else ", ".join(names)

    def default_dtype(self) -> np.dtype[Any] | None:
        """The dtype that JAX makes by default under this hint; None where it cannot be known (`Shaped`, `Key`)."""
        if self.dtypes is None or self.exact_dtype is not None:
            return self.exact_dtype
        whole = np.dtype(jnp.result_type(int))
        unsigned = np.dtype(f"u{whole.name}")
        defaults = (np.dtype(jnp.result_type(float)), whole, unsigned, np.dtype(jnp.result_type(complex)))
        return next((dtype for dtype in defaults if self.allows(dtype)), None)


@dataclass(frozen=True)
class ScalarHint:
    """`float` or `complex`: a traced number of rank 0."""

    kind: Literal["float", "complex"]

    @property
    def text(self) -> str:
        """As written."""
        return self.kind


@dataclass(frozen=True)
class StaticHint:
    """A value that is part of the program: `int`, `str`, `Literal`, an enum, a type. beartype checks it.

    `parts` are the items of a container or the alternatives of a union: beartype looks at one item at random.
    """

    hint: Any = field(hash=False)
    text: str
    parts: Hint | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class UnionHint:
    """`X | Y`: the first alternative that fits."""

    options: tuple[Hint, ...]
    text: str


@dataclass(frozen=True)
class TreeHint:
    """`PyTree[X]` or `PyTree[X, "T"]`."""

    leaf: Hint
    structure: str | None
    text: str


@dataclass(frozen=True)
class ContainerHint:
    """`tuple[X, Y]`, `list[X]`, `dict[str, X]`, a NamedTuple or a TypedDict. `variadic`: one item hint for all."""

    kind: type
    items: tuple[Hint, ...]
    variadic: bool
    text: str
    keys: tuple[str, ...] = ()  # of a NamedTuple or a TypedDict


@dataclass(frozen=True)
class ModuleHint:
    """An instance of a class that may be a pytree: an Equinox module, a dataclass, a callable.

    Its leaves decide themselves: arrays are traced, all else is static.
    """

    cls: type
    text: str


@dataclass(frozen=True)
class AnyHint:
    """No annotation, or one that drives no decision; `reason` says why."""

    reason: str = ""

    @property
    def text(self) -> str:
        """For messages."""
        return "Any"


Hint: TypeAlias = ArrayHint | ScalarHint | StaticHint | UnionHint | TreeHint | ContainerHint | ModuleHint | AnyHint


def read(hint: object) -> Hint:
    """Read one type hint. Never raises for what `typing` and jaxtyping accept."""
    return _read(hint, frozenset())


def _read(hint: Any, seen: frozenset[int]) -> Hint:
    """The readers, narrow ones first. `seen` holds the aliases and records above, which may contain themselves."""
    return (
        _read_plain(hint)
        or _read_wrapper(hint, seen)
        or _read_jaxtyping(hint, seen)
        or _read_union(hint, seen)
        or _read_container(hint, seen)
        or _read_class(hint)
        or AnyHint(f"`{_text(hint)}` names no axes")
    )


def _read_plain(hint: Any) -> Hint | None:
    """Hints with nothing inside."""
    if hint is inspect.Parameter.empty or hint is Any or hint is object:
        return AnyHint()
    if hint is None or hint is types.NoneType:
        return StaticHint(None, "None")
    if hint is float or hint is complex:
        return ScalarHint("float" if hint is float else "complex")
    if isinstance(hint, str | typing.ForwardRef):
        return AnyHint(f"`{_text(hint)}` is not resolved")
    if _same(hint, jax.typing.DTypeLike) or _same(hint, npt.DTypeLike):
        return StaticHint(hint, "DTypeLike")
    if _same(hint, jax.typing.ArrayLike) or _same(hint, npt.ArrayLike):
        return ArrayHint((_dim("..."),), None, "ArrayLike", array_like=True)
    if get_origin(hint) is Literal or get_origin(hint) is type:
        return StaticHint(_modern(hint), _text(hint))
    return None


def _modern(hint: Any) -> Any:
    """`list[int]` for `typing.List[int]`: beartype warns of the old form, and the user of jitney did not ask beartype."""
    origin, args = get_origin(hint), get_args(hint)
    if not isinstance(origin, type) or not args or isinstance(args[0], list):  # the last is `Callable[[X], Y]`
        return hint
    return types.GenericAlias(origin, tuple(_modern(arg) for arg in args))


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type)


def _same(hint: Any, other: Any) -> bool:
    return type(hint) is type(other) and bool(hint == other)


def _read_wrapper(hint: Any, seen: frozenset[int]) -> Hint | None:
    """Hints that stand for another one: aliases, `Annotated`, `NewType`, type variables."""
    origin = get_origin(hint)
    if origin in (typing.Annotated, typing.Final, typing.ClassVar, typing.Required, typing.NotRequired):
        return _read(get_args(hint)[0], seen)
    if isinstance(hint, typing.NewType):
        return _read(hint.__supertype__, seen)
    if isinstance(hint, TypeVar):
        either = typing.Union[hint.__constraints__] if hint.__constraints__ else None  # noqa: UP007  # a tuple of them
        stands_for = hint.__bound__ or either
        return AnyHint(f"type variable `{hint}` has no bound") if stands_for is None else _read(stands_for, seen)
    alias = hint if origin is None else origin
    if type(alias).__name__ == "TypeAliasType":  # typing's on 3.12, typing_extensions' before
        if id(alias) in seen:
            return AnyHint(f"`{alias}` contains itself")
        return _read(alias.__value__, seen | {id(alias)})
    return None


def _read_jaxtyping(hint: Any, seen: frozenset[int]) -> Hint | None:
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return None
    if issubclass(hint, _PyTree):
        return _read_tree(hint, seen)
    if issubclass(hint, jaxtyping.AbstractDtype):
        return AnyHint(f"`{hint.__name__}` has no shape")
    return _read_array(hint) if issubclass(hint, jaxtyping.AbstractArray) else None


def named_array(axes: str) -> Hint:
    """The hint of an array of any dtype with these axes, in jaxtyping's notation."""
    return _read_array(jaxtyping.Shaped[jax.Array, axes])


def _read_tree(hint: Any, seen: frozenset[int]) -> Hint:
    if not hasattr(hint, "leaftype"):
        return AnyHint("`PyTree` has no leaf type")
    leaf = _read(hint.leaftype, seen)
    tail = "" if hint.structure is None else f", '{hint.structure}'"
    return TreeHint(leaf, hint.structure, f"PyTree[{leaf.text}{tail}]")


def _read_array(hint: Any) -> Hint:
    if not hasattr(hint, "dim_str"):
        return AnyHint("`AbstractArray` has no shape")
    array_type = hint.array_type
    if array_type is not Any and not issubclass(array_type, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return AnyHint(f"`{_text(array_type)}` is neither a JAX nor a NumPy array")
    dims = tuple(_dim(token) for token in hint.dim_str.split())
    dtypes = tuple(hint.dtypes) if hasattr(hint.dtypes, "__iter__") else None  # else jaxtyping's mark for "any"
    return ArrayHint(dims, dtypes, f"{hint.dtype.__name__}[{_text(array_type)}, '{hint.dim_str}']")


def _read_union(hint: Any, seen: frozenset[int]) -> Hint | None:
    if get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    members = get_args(hint)
    array = _one_array(members, seen)
    if array is not None:
        return array
    options = tuple(dict.fromkeys(_read(member, seen) for member in members))
    for option in options:
        if isinstance(option, AnyHint):
            return AnyHint(option.reason or f"`{_text(hint)}` takes anything")
    if len(options) == 1:
        return options[0]
    found = UnionHint(options, " | ".join(option.text for option in options))
    statics = [option.hint for option in options if isinstance(option, StaticHint)]
    if len(statics) < len(options):
        return found
    return StaticHint(typing.Union[tuple(statics)], _text(hint), found)  # noqa: UP007  # a tuple of them


def _one_array(members: tuple[Any, ...], seen: frozenset[int]) -> ArrayHint | None:
    """`Float[ArrayLike, ""]` is a union of arrays and of numbers to jaxtyping, and one array to us."""
    read_members = [_read(member, seen) for member in members if not _is_number_type(member)]
    arrays = [hint for hint in read_members if isinstance(hint, ArrayHint)]
    if len(arrays) < len(read_members) or len(set(arrays)) != 1:
        return None
    array, numbers = arrays[0], [member for member in members if _is_number_type(member)]
    takes_rank_0 = all(dim.variadic for dim in array.dims)
    if numbers and not (takes_rank_0 and all(_number_fits(number, array) for number in numbers)):
        return None
    if {int, bool} & {*numbers} and not {np.number, np.generic} & {*numbers}:
        return None  # `int | Int[Array, ""]` was not made from ArrayLike: there `int` stays static
    text = re.sub(r"\[\w+,", "[ArrayLike,", array.text) if len(members) > 1 else array.text
    return dataclasses.replace(array, text=text, array_like=bool(numbers))


def _is_number_type(hint: Any) -> bool:
    return hint in (bool, int, float, complex) or (isinstance(hint, type) and issubclass(hint, np.generic))


def _number_fits(number: type, array: ArrayHint) -> bool:
    if array.dtypes is None or number not in (bool, int, float, complex):
        return True
    return any(isinstance(name, str) and name.startswith(number.__name__) for name in array.dtypes)


_VARIADIC = (list, tuple, collections.abc.Sequence, collections.abc.MutableSequence)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.abc.Mapping, collections.abc.MutableMapping)


def _read_container(hint: Any, seen: frozenset[int]) -> Hint | None:
    kind: Any = get_origin(hint) or hint
    args = get_args(hint)
    if not _is_class(kind):
        return None
    if kind in _MAPPINGS:
        items, variadic = (args[1] if len(args) == 2 else Any,), True
    elif kind is tuple and args and Ellipsis not in args:
        items, variadic = () if args == ((),) else args, False
    elif kind in _VARIADIC:
        empty_tuple = kind is tuple and not args and get_origin(hint) is not None and hint is not typing.Tuple  # noqa: UP006
        items, variadic = () if empty_tuple else (args[:1] or (Any,)), not empty_tuple
    elif typing.is_typeddict(kind) or _is_namedtuple(kind):
        return _read_record(kind, seen)
    else:
        return None
    hints = tuple(_read(item, seen) for item in items)
    found = ContainerHint(kind, hints, variadic, _text(hint))
    static = bool(hints) and all(isinstance(item, StaticHint) for item in hints)
    return StaticHint(_modern(hint), _text(hint), found) if static else found


def _is_namedtuple(kind: Any) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")  # pyright: ignore[reportUnknownArgumentType]


def _read_record(kind: type, seen: frozenset[int]) -> Hint:
    """A NamedTuple or a TypedDict."""
    if id(kind) in seen:
        return AnyHint(f"`{kind.__name__}` contains itself")
    raws = _resolved_fields(kind)
    names: tuple[str, ...] = getattr(kind, "_fields", tuple(raws))
    hints = tuple(_read(raws.get(name, Any), seen | {id(kind)}) for name in names)
    kind_of_value = dict if typing.is_typeddict(kind) else kind
    return ContainerHint(kind_of_value, hints, variadic=False, text=kind.__name__, keys=names)


_STATIC = (int, str, bytes, enum.Enum, type, np.dtype, slice, range, set, frozenset, types.ModuleType, types.EllipsisType)


def _read_class(hint: Any) -> Hint | None:
    kind: Any = get_origin(hint) or hint
    if not _is_class(kind) or kind in (typing.Generic, typing.Protocol):
        return None
    if issubclass(kind, jax.Array | np.ndarray | jax.ShapeDtypeStruct | np.generic):
        return AnyHint(f"`{_text(hint)}` names no axes")
    if issubclass(kind, _STATIC):
        return StaticHint(_modern(hint), _text(hint))
    if kind in (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection, collections.abc.Generator):
        return None
    return ModuleHint(kind, _text(hint))


def _dim(written: str) -> Dim:
    """One token, read as jaxtyping reads it."""
    if written == "...":
        return Dim(written, "anonymous", variadic=True)
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
    common: dict[str, Any] = {"broadcast": "#" in marks, "variadic": "*" in marks, "per_leaf": "?" in marks}
    if not rest or rest.isidentifier():
        return Dim(written, "anonymous", **common) if "_" in marks or not rest else Dim(written, "named", name=rest, **common)
    try:
        return Dim(written, "fixed", size=int(rest), **common)
    except ValueError:
        return Dim(written, "symbolic", expr=rest, **common)


def _names_in(expr: str) -> Iterator[str]:
    """Axis names in a symbolic size; what stands in braces are arguments, not axes."""
    try:
        tree = ast.parse(re.sub(r"\{[^}]*\}", "0", expr), mode="eval")
    except SyntaxError:
        return
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called:
            yield node.id


def dtype_name(dtype: Any) -> str:
    """The name that jaxtyping compares: that of the scalar type, so key dtypes are `prng_key`."""
    kind = getattr(dtype, "type", None)
    if kind is np.void and dtype != np.dtype(np.void):
        return str(dtype)  # a structured array
    if isinstance(kind, type):
        return kind.__name__
    return dtype if isinstance(dtype, str) else repr(dtype).rsplit(".", 1)[-1]


def _named_dtype(name: str | re.Pattern[str] | None) -> np.dtype[Any] | None:
    if not isinstance(name, str):
        return None
    try:
        return np.dtype(jnp.dtype(name.removesuffix("_")))
    except TypeError:
        return None


def _text(hint: Any) -> str:
    if isinstance(hint, str | typing.ForwardRef):
        return hint if isinstance(hint, str) else hint.__forward_arg__
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint.__name__.rpartition(".")[2]
    return re.sub(r"(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", repr(hint))


# Resolving what was written as a string.


class _Probe(eqx.Module):
    def method(self) -> None: ...


_BOUND: tuple[type, ...] = (types.MethodType, type(_Probe().method))  # Equinox has a type of its own for bound methods
_jitted: Any = (jax.jit(len), eqx.filter_jit(len))  # pyright: ignore[reportUnknownMemberType]
_LOOK_THROUGH: tuple[type, ...] = (*map(type, _jitted), jax.custom_jvp, jax.custom_vjp)
_UNRESOLVED = (NameError, AttributeError, TypeError, ValueError, SyntaxError, LookupError, ImportError)


def hints_of(fn: Callable[..., Any], namespace: Mapping[str, Any] | None = None) -> tuple[dict[str, Hint], Hint, tuple[str, ...]]:
    """Hints of a function's parameters, of its result, and the names of those that cannot be resolved (yet).

    `namespace` holds further names, such as the locals of the frame that decorates.
    """
    base, owner = _innermost(fn)
    scope = {**(namespace or {}), **_closure(base), **_class_scope(base, owner)}
    hints: dict[str, Hint] = {}
    unresolved: list[str] = []
    transformed = _rewrites(base)
    for name, raw in _raw_annotations(base).items():
        if transformed:
            hints[name] = AnyHint("a JAX or Equinox transform stands between the annotations and the caller")
            continue
        try:
            hints[name] = read(_resolve(raw, getattr(base, "__globals__", {}), scope))
        except _UNRESOLVED as error:
            # Where only a part is missing, as in `list["Later"]`, the rest is read.
            hints[name] = AnyHint(f"`{raw}` cannot be resolved: {error}") if isinstance(raw, str) else read(raw)
            unresolved.append(name)
    result = hints.pop("return", AnyHint())
    if inspect.isclass(fn):  # calling it returns an instance, not what `__init__` is annotated with
        result = AnyHint()
    return hints, result, tuple(unresolved)


def annotated_names(fn: Callable[..., Any]) -> frozenset[str]:
    """Every name that the annotations of a function may mention."""
    return frozenset(name for raw in _raw_annotations(_innermost(fn)[0]).values() for name in re.findall(r"\w+", str(raw)))


@functools.lru_cache(maxsize=4096)
def fields_of(cls: type) -> Mapping[str, Hint]:
    """Hints of the annotated fields of a class, inherited ones too, each resolved where it was written."""
    return types.MappingProxyType({name: read(raw) for name, raw in _resolved_fields(cls).items()})


def _resolved_fields(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        module = sys.modules.get(owner.__module__)
        for name, raw in _raw_annotations(owner).items():
            try:
                found[name] = _resolve(raw, vars(module) if module else {}, {**vars(owner), owner.__name__: owner})
            except _UNRESOLVED:
                found[name] = raw
    if not dataclasses.is_dataclass(cls):
        return found
    return {item.name: found.get(item.name, Any) for item in dataclasses.fields(cls)}


def _resolve(raw: Any, globalns: dict[str, Any], localns: Mapping[str, Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"value": raw}
    return typing.get_type_hints(holder, globalns, dict(localns), include_extras=True)["value"]


def _raw_annotations(obj: Any) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):  # annotations are lazy there: names that are missing become ForwardRefs
        import annotationlib

        return annotationlib.get_annotations(obj, format=annotationlib.Format.FORWARDREF)
    if isinstance(obj, type) or callable(obj):
        return inspect.get_annotations(obj)
    return {}


def _innermost(fn: Any) -> tuple[Any, type | None]:
    """The function whose annotations count, under partial, bound methods, wrappers, instances and classes."""
    owner: Any = None
    while not _rewrites(fn):
        above = fn.__class__
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, _BOUND):
            receiver, fn = getattr(fn, "__self__", None), getattr(fn, "__func__", None)
            owner = receiver if isinstance(receiver, type) else receiver.__class__
        elif isinstance(fn, _LOOK_THROUGH) or (hasattr(fn, "__wrapped__") and not hasattr(fn, "__signature__")):
            fn = getattr(fn, "__wrapped__")  # noqa: B009
        elif inspect.isclass(fn):
            return fn.__init__, fn
        elif not inspect.isroutine(fn) and inspect.isroutine(inspect.getattr_static(above, "__call__", None)):
            owner, fn = above, inspect.getattr_static(above, "__call__")
        else:
            break
    return fn, owner


def _rewrites(fn: Any) -> bool:
    """Whether this is `jax.grad(f)`, `eqx.filter_vmap(f)` or the like: they show the signature of `f`, but have another."""
    if not hasattr(fn, "__wrapped__") or isinstance(fn, (*_BOUND, *_LOOK_THROUGH)):
        return False
    home = fn.__globals__.get("__name__", "") if isinstance(fn, types.FunctionType) else fn.__class__.__module__
    return home.partition(".")[0] in ("jax", "jaxlib", "equinox")


def _closure(fn: Any) -> dict[str, Any]:
    found = {str(param): param for param in getattr(fn, "__type_params__", ())}
    if isinstance(fn, types.FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell: the variable is not set yet
                found[name] = cell.cell_contents
    return found


def _class_scope(fn: Any, owner: type | None) -> dict[str, Any]:
    """Names that a method's annotations see: those of its class body, and the class itself."""
    path = getattr(fn, "__qualname__", "").split(".")[:-1]
    found: Any = None
    for cls in () if owner is None else owner.__mro__:
        if cls.__qualname__.split(".") == path:
            found = cls
    if found is None and path and "<locals>" not in path:
        found = getattr(fn, "__globals__", {}).get(path[0])
        for name in path[1:]:
            found = getattr(found, name, None)
    if not isinstance(found, type):
        return {}
    params = {str(param): param for param in getattr(found, "__type_params__", ())}
    body = {name: value for name, value in vars(found).items() if not hasattr(builtins, name)}
    return {**params, **body, found.__name__: found}
