"""A type hint as data: which axes, which dtypes, traced or static. It is read in
`_signature/annotations.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
import numpy as np

from .._extent import Unreadable, filled, names_in

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
        axes = (
            name for dim in self.dims if dim.expr is not None for name in sorted(names_in(dim.expr))
        )
        return tuple(dict.fromkeys(axes))

    @property
    def has_braces(self) -> bool:
        """Whether a size depends on the value of an argument, as `{model.width}` does."""
        return any(dim.expr is not None and "{" in dim.expr for dim in self.dims)

    def written_out(self, arguments: Mapping[str, Any]) -> ArrayHint:
        """The same, with the values of arguments in place of what stands in braces, as far as they
        have any.
        """
        return replace(
            self,
            dims=tuple(replace(dim, expr=_written_out(dim.expr, arguments)) for dim in self.dims),
        )

    @property
    def exact_dtype(self) -> np.dtype[Any] | None:
        """The one dtype that fits, if there is just one (`Float32`, `Bool`)."""
        dtypes = {_named_dtype(name) for name in self.dtypes or (None,)}
        return dtypes.pop() if len(dtypes) == 1 else None

    def allows(self, dtype: Any) -> bool:
        """Whether jaxtyping takes an array of this dtype."""
        if self.dtypes is None:
            return True
        name = dtype_name(dtype)
        return any(
            allowed == name if isinstance(allowed, str) else allowed.match(name)
            for allowed in self.dtypes
        )

    @property
    def allowed(self) -> str:
        """The dtypes that fit, in words; the exotic narrow ones are left out where there are
        many.
        """
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

    def default_dtype(self) -> np.dtype[Any] | None:
        """The dtype that JAX makes by default under this hint; None where it cannot be known
        (`Shaped`, `Key`).
        """
        if self.dtypes is None or self.exact_dtype is not None:
            return self.exact_dtype
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
    """`float` or `complex`: a traced number of rank 0."""

    kind: Literal["float", "complex"]

    @property
    def text(self) -> str:
        """As written."""
        return self.kind


@dataclass(frozen=True)
class StaticHint:
    """A value that is part of the program: `int`, `str`, `Literal`, an enum, a type. beartype
    checks it.

    `parts` are the items of a container or the alternatives of a union: beartype looks at one item
    at random.
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
    """`tuple[X, Y]`, `list[X]`, `dict[str, X]`, a NamedTuple or a TypedDict. `variadic`: one item
    hint for all.
    """

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
    is_unresolved: bool = False  # a field's annotation, which names what is not there

    @property
    def text(self) -> str:
        """For messages."""
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


def _written_out(expr: str | None, arguments: Mapping[str, Any]) -> str | None:
    try:
        return expr and filled(expr, arguments)
    except Unreadable:
        return expr


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
