"""Type hints as data: axes, dtypes, and whether a value is traced or static. `type_hints.py` and
`array_hints.py` read them from annotations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ForwardRef, Literal, TypeAlias, get_origin

import jax.numpy as jnp
import numpy as np

from .._extent import Unreadable, fill_braces, names_in
from .._jax.typed import DType

_NARROW = ("float4", "float8", "int2", "int4", "uint2", "uint4")


@dataclass(frozen=True)
class Dim:
    """Token of a shape string. `rows=4` is fixed at 4; `...` is anonymous and variadic."""

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
    """Hint `Float[Array, "n"]` of a traced array. `dtypes` is None if any dtype fits."""

    dims: tuple[Dim, ...]
    dtypes: tuple[str | re.Pattern[str], ...] | None
    text: str = field(compare=False)
    # Python numbers fit too, as in `Float[ArrayLike, ""]`.
    array_like: bool = False

    @property
    def rank(self) -> int | None:
        """Number of axes, or None if `*name` or `...` leaves it open."""
        return None if any(dim.variadic for dim in self.dims) else len(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """Axes that the array binds, in order, without repeats."""
        return tuple(dict.fromkeys(dim.name for dim in self.dims if dim.name is not None))

    @property
    def mentions(self) -> tuple[str, ...]:
        """Axes that symbolic sizes such as `n+1` refer to."""
        axes = (
            name for dim in self.dims if dim.expr is not None for name in sorted(names_in(dim.expr))
        )
        return tuple(dict.fromkeys(axes))

    @property
    def has_braces(self) -> bool:
        """True if a size depends on the value of an argument, as `{model.width}` does."""
        return any(dim.expr is not None and "{" in dim.expr for dim in self.dims)

    def fill_in_sizes(self, arguments: Mapping[str, object]) -> ArrayHint:
        """The same hint with the parts in braces replaced by values of arguments, as far as they
        can be read.
        """
        return replace(
            self,
            dims=tuple(replace(dim, expr=_fill_in_sizes(dim.expr, arguments)) for dim in self.dims),
        )

    @property
    def exact_dtype(self) -> DType | None:
        """The only dtype that fits (`Float32`, `Bool`), or None if there are several."""
        dtypes = {_named_dtype(name) for name in self.dtypes or (None,)}
        return dtypes.pop() if len(dtypes) == 1 else None

    def allows(self, dtype: DType) -> bool:
        """Return whether jaxtyping accepts an array of this dtype."""
        if self.dtypes is None:
            return True
        name = dtype_name(dtype)
        return any(
            allowed == name if isinstance(allowed, str) else allowed.match(name)
            for allowed in self.dtypes
        )

    @property
    def dtypes_text(self) -> str:
        """List of the dtypes that fit, for messages. A long list omits the exotic narrow ones."""
        names = [
            name if isinstance(name, str) else name.pattern
            for name in self.dtypes or ("any dtype",)
        ]
        wide = [name for name in names if not name.startswith(_NARROW)]
        return (
            ", ".join(wide) + " and narrower ones"
            if 0 < len(wide) < len(names)
            else ", ".join(names)
        )

    def default_dtype(self) -> DType | None:
        """Default dtype of JAX for this hint; None if it cannot be known (`Shaped`, `Key`)."""
        if self.dtypes is None or self.exact_dtype is not None:
            return self.exact_dtype
        # The defaults depend on `jax_enable_x64`, so they are computed at each call.
        whole = np.dtype(jnp.result_type(int))
        unsigned = np.dtype(f"u{whole.name}")
        defaults = (
            np.dtype(jnp.result_type(float)),
            whole,
            unsigned,
            np.dtype(jnp.result_type(complex)),
        )
        return next((dtype for dtype in defaults if self.allows(dtype)), None)


@dataclass(frozen=True)
class ScalarHint:
    """Hint `float` or `complex` of a traced number of rank 0."""

    kind: Literal["float", "complex"]
    # One alternative of a union, as in `float | Array`.
    is_alternative: bool = field(default=False, compare=False)

    @property
    def text(self) -> str:
        """The hint as written."""
        return self.kind


@dataclass(frozen=True)
class StaticHint:
    """Hint of a value that is part of the program: `int`, `str`, `Literal`, an enum, a type.
    beartype checks it.

    `parts` are the items of a container or the alternatives of a union, which are checked one by
    one, since beartype looks at one item of a container at random.
    """

    hint: object = field(hash=False)
    text: str
    parts: Hint | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class UnionHint:
    """Union `X | Y`, read as the first alternative that fits."""

    options: tuple[Hint, ...]
    text: str


@dataclass(frozen=True)
class TreeHint:
    """Pytree `PyTree[X]` or `PyTree[X, "T"]`."""

    leaf: Hint
    structure: str | None
    text: str


@dataclass(frozen=True)
class ContainerHint:
    """Container `tuple[X, Y]`, `list[X]`, `dict[str, X]`, a NamedTuple or a TypedDict. If
    `variadic`, one hint serves all items.
    """

    kind: type
    items: tuple[Hint, ...]
    variadic: bool
    text: str
    # Field names of a NamedTuple or keys of a TypedDict.
    keys: tuple[str, ...] = ()
    # Keys of a TypedDict that may be missing.
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ModuleHint:
    """Instance of a class that may be a pytree: an Equinox module, a dataclass, a callable.

    The class decides nothing: leaves that are arrays are traced, all others are static.
    """

    cls: type
    text: str


@dataclass(frozen=True)
class AnyHint:
    """Missing annotation, or one that drives no decision; `reason` says why."""

    reason: str = ""
    # The annotation of a field contains an undefined name.
    is_unresolved: bool = False
    # Hint of Python numbers, as in `float | Array`.
    number: ScalarHint | None = None
    # The value is an array all the same.
    is_array: bool = False

    @property
    def text(self) -> str:
        """Name for messages."""
        return "Any"


Hint: TypeAlias = (
    ArrayHint
    | ScalarHint
    | StaticHint
    | UnionHint
    | TreeHint
    | ContainerHint
    | ModuleHint
    | AnyHint
)


def _fill_in_sizes(expr: str | None, arguments: Mapping[str, object]) -> str | None:
    try:
        return expr and fill_braces(expr, arguments)
    except Unreadable:
        return expr


def dtype_name(dtype: DType) -> str:
    """Name of the dtype as jaxtyping compares it: that of the scalar type, so key dtypes are
    `prng_key`.
    """
    kind = getattr(dtype, "type", None)
    # A structured dtype is named in full: its scalar type alone would omit the fields.
    if kind is np.void and dtype != np.dtype(np.void):
        return str(dtype)
    if isinstance(kind, type):
        return kind.__name__
    return dtype if isinstance(dtype, str) else repr(dtype).rsplit(".", 1)[-1]


def _named_dtype(name: str | re.Pattern[str] | None) -> DType | None:
    if not isinstance(name, str):
        return None
    try:
        return np.dtype(jnp.dtype(name.removesuffix("_")))
    except TypeError:
        return None


def hint_text(hint: object) -> str:
    """Text of an annotation, without the modules of its names."""
    if isinstance(hint, str | ForwardRef):
        return hint if isinstance(hint, str) else hint.__forward_arg__
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint.__name__.rpartition(".")[2]
    return re.sub(r"(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", repr(hint))
