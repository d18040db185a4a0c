"""A call as data: which leaves of its arguments are arrays, which are static, and how to put them
together again.

A `Layout` belongs to one tree structure with one type for each leaf, so finding it is one
dictionary look-up; what it then does on each call is pick the arrays out of a list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, TypeVar

import jax
import numpy as np
from jax.tree_util import DictKey, SequenceKey

from .._contract.contract import Contract
from .._errors import ContractError, StaticError, repr_of
from .._jax.trees import (
    Path,
    Tracer,
    attribute,
    canonicalize_dtype,
    extended,
    is_a,
    issubdtype,
    keystr,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
    type_of,
)
from .._signature.array_likes import a_kind, array_like_error, array_likes, means_more, numbers_of
from .._signature.binding import Binder
from .._signature.copies import Copies, snapshot
from .._signature.hints import ScalarHint
from .._signature.known_values import Known
from .._signature.plain_objects import article, first_used_up
from .._signature.static_values import Opaque, Unkeyed, has_hash, keyer_of, unkeyed
from .._signature.told_apart import exactly
from .building import holds_modules
from .module_axes import InModule, axes_in_modules
from .static_fields import copy_loose, loose_parts
from .view import Leaf, LeafHint, View, is_array, leaf_hints

_T = TypeVar("_T")
# sets of static values kept for one function; past that the oldest goes, and would be traced again
MAX_ENTRIES = 4096


class Layout:
    """How calls of one tree structure and one type for each leaf split into arrays and static
    values.
    """

    def __init__(
        self,
        binder: Binder,
        contract: Contract,
        values: tuple[Any, ...],
        donate: tuple[str, ...],
        constants: int = 0,
    ):
        paths, self.treedef = tree_flatten_with_path(values)
        leaves = [leaf for _, leaf in paths]
        hints = leaf_annotations(contract, values)
        self.dynamic = tuple(i for i, leaf in enumerate(leaves) if is_traced(leaf, hints[i]))
        self.static = tuple(sorted(set(range(len(leaves))) - set(self.dynamic)))
        self._where = binder.where
        self.names = tuple(name_of(binder, path) for path, _ in paths)
        self.donated = tuple(n for n, i in enumerate(self.dynamic) if self.names[i][0] in donate)
        self.nested = traced(leaves)
        self._refuse_lost_meanings(leaves)
        for i in self.static:
            # before its key is made, for which it may have no hash
            self._refuse_array_likes(leaves[i], self.names[i][1])
        self.pick = self._picker(leaves, hints)
        self._keyers = tuple((i, keyer_of(type_of(leaves[i]))) for i in self.static)
        kinds = tuple(type_of(leaves[i]) for i in self.static)
        self.form: tuple[Any, ...] = (self.treedef, exactly([self.treedef]), self.dynamic, kinds)
        """What two layouts must share for their calls to share programs."""
        self.loose = loose_parts(values)
        """What its traces can see beside leaves, and callers can change in place."""
        self.constants = constants
        """How many static values are the same in all of its calls, by the key that finds it."""
        # What runs its calls, kept here because a call has found its layout when it looks for that.
        self.only: Any = None  # the one entry, where no static value can tell two apart
        self.entries: dict[Hashable, Any] = {}
        # most functions that are called twice alike are called again and again
        self.called_again = False

    def _refuse_lost_meanings(self, leaves: Sequence[Any]) -> None:
        """Check that JAX sees all that its arrays are. Their types tell, so calls that follow need
        not ask.

        Raises:
            ContractError: An array of NumPy's has a mask, a unit or fields.
        """
        for i in self.dynamic:
            leaf, path = leaves[i], self.names[i][1]
            if means_more(type_of(leaf)):
                raise ContractError(
                    self._where,
                    f"{path!r} is {a_kind(leaf)}, which is more than its numbers.",
                    "Of a subclass of NumPy's array JAX sees the numbers alone: a mask or a unit"
                    " would be lost.",
                    f"{numbers_of(leaf, path)}.",
                    code="J213",
                )

    def refuse_unreadable(self, leaves: Sequence[Any]) -> None:
        """Check that a trace can read the static values of a call for all calls that will share its
        program.

        Raises:
            StaticError: An iterator or a coroutine, which the trace uses up.
            ContractError: What looks like an array and is none, whose numbers may be others later.
        """
        for i in self.static:
            leaf, path = leaves[i], self.names[i][1]
            self._refuse_used_up(repr(path), unwrapped(leaf))
            self._refuse_array_likes(leaf, path)
        for part in self.loose:
            self._refuse_used_up("a static field", part)
            for found in array_likes(part):
                raise array_like_error(self._where, "a static field is or holds", found, "x")

    def _refuse_array_likes(self, leaf: Any, path: str) -> None:
        for found in () if is_a(leaf, Opaque) else array_likes(leaf):
            raise array_like_error(
                self._where, f"{path!r} {'is' if found is leaf else 'holds'}", found, path
            )

    def _refuse_used_up(self, what: str, value: Any) -> None:
        used_up = first_used_up(value)
        if used_up is not None:
            raise StaticError(
                self._where,
                f"{what} {'is' if used_up is value else 'holds'} {article(used_up)}.",
                "It can be read once, and what is traced once serves many calls.",
                "pass a list, a tuple or an array.",
                code="J311",
            )

    def remember(self, key: Hashable, entry: _T) -> _T:
        """Find this entry by the key of its static values from now on."""
        if len(self.static) == self.constants and not self.loose:
            self.only = entry
        elif len(self.entries) >= MAX_ENTRIES:
            self.entries.clear()
        self.entries[key] = entry
        return entry

    def _picker(
        self, leaves: Sequence[Any], hints: Sequence[LeafHint]
    ) -> Callable[[list[Any]], Sequence[Any]]:
        """From the leaves of a call to its arrays, with as little work as the types allow."""
        whole = {i: hints[i] for i in self.dynamic if type(leaves[i]) is int}
        # an int passed for a float is that float, or the function would compile once more for ints
        if whole:
            return lambda all_: [
                _number(whole[i], all_[i]) if i in whole else all_[i] for i in self.dynamic
            ]
        if not self.static:
            return _all
        if len(self.dynamic) == 1:
            only = self.dynamic[0]
            return lambda all_: (all_[only],)
        itemgetter: Any = operator.itemgetter
        return itemgetter(*self.dynamic) if self.dynamic else _nothing

    def key(self, leaves: Sequence[Any]) -> tuple[Hashable, ...]:
        """The key of the static values of a call; their types are part of `form`."""
        try:
            return tuple(
                [leaves[i] if keyer is None else keyer(leaves[i]) for i, keyer in self._keyers]
            )
        except Unkeyed:
            raise self._unkeyed(leaves, self.static) from None

    def check_hashes(self, leaves: Sequence[Any]) -> None:
        """Check that static values have the `hash` that their classes say they have, which fails
        when it is looked for an entry.

        Raises:
            StaticError: One has none, for now: it is made of a list, say.
        """
        unhashed = [i for i, keyer in self._keyers if keyer is None and not has_hash(leaves[i])]
        if unhashed:
            raise self._unkeyed(leaves, unhashed) from None

    def _unkeyed(self, leaves: Sequence[Any], at: Sequence[int]) -> StaticError:
        return unkeyed(
            self._where,
            ((self.names[i][1], leaves[i]) for i in at if not isinstance(leaves[i], Opaque)),
        )

    def statics(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The static values of a call, copied, in the order of `static`."""
        copies = Copies()
        return tuple(self._copied(i, leaves[i], copies) for i in self.static)

    def _copied(self, i: int, leaf: Any, copies: Copies) -> Any:
        try:
            return snapshot(leaf.value if isinstance(leaf, Opaque) else leaf, copies)
        except Unkeyed as problem:
            raise problem.of(self._where, f"static {self.names[i][1]!r}") from None

    def values(
        self, arrays: Sequence[Any], statics: Sequence[Any], *, for_body: bool = False
    ) -> tuple[Any, ...]:
        """One value per parameter, from arrays (or what stands for them) and static values; static
        fields are copied for a body.
        """
        leaves: list[Any] = [None] * (len(self.dynamic) + len(self.static))
        for i, array in zip(self.dynamic, arrays, strict=True):
            leaves[i] = array
        for i, value in zip(self.static, statics, strict=True):
            leaves[i] = value
        values: tuple[Any, ...] = tree_unflatten(self.treedef, leaves)
        if for_body and self.loose:
            copy_loose(values)
        return values

    def has(self, treedef: Hashable, leaves: Sequence[Any], arrays: Sequence[Any]) -> bool:
        """Whether it is the layout of what is of this structure, with these leaves and arrays."""
        kinds = tuple(type_of(leaves[i]) for i in self.static if i < len(leaves))
        same = (treedef, exactly([treedef]), self.dynamic, kinds) == self.form
        return same and all(map(operator.is_, self.pick(list(leaves)), arrays))

    def static_names(self) -> tuple[str, ...]:
        return tuple(self.names[i][1] for i in self.static)

    def view(self, contract: Contract, arrays: Sequence[Any], statics: Sequence[Any]) -> View:
        """What the outermost stage sees. Static values that are trees of their own stand as one
        leaf each.
        """
        values = self.values(arrays, [Opaque.holding(value) for value in statics])
        hints = leaf_annotations(contract, values)
        fields = axes_in_modules(values) if holds_modules(self.treedef) else [None] * len(hints)
        return View(
            tuple(
                _leaf(self.names[i], hints[i], fields[i], array)
                for i, array in zip(self.dynamic, arrays, strict=True)
            )
        )


def _leaf(name: tuple[str, str], hint: LeafHint, inside: InModule | None, array: Any) -> Leaf:
    argument, path = name
    return Leaf(path, argument, *described(array), hint, None if inside is None else inside.hint)


def traced(leaves: Iterable[Any]) -> bool:
    """Whether a call with these leaves stands inside another trace."""
    return any(isinstance(leaf, Tracer) for leaf in leaves)


def jit_is_off() -> bool:
    """Inside `jax.disable_jit()`, where whoever debugs wants to see values."""
    options: Any = jax.config
    return options.jax_disable_jit


def described(array: Any) -> tuple[tuple[int, ...], Any, bool]:
    """Shape, dtype as JAX takes it, and weak type of an array, a tracer, an abstract value or a
    Python number.
    """
    if isinstance(array, (bool, int, float, complex)) and not isinstance(array, np.generic):
        return (), canonicalize_dtype(type(array)), True
    dtype = array.dtype
    if not issubdtype(dtype, extended):
        dtype = canonicalize_dtype(dtype)
    return tuple(array.shape), dtype, bool(getattr(array, "weak_type", False))


def wrap_statics(
    values: tuple[Any, ...], positions: Mapping[int, Known], names: Mapping[str, Known]
) -> tuple[Any, ...]:
    """Hold the arguments at `positions` (and `names` among `**kwargs`, which come last) static as a
    whole.
    """
    out = list(values)
    for i, known in positions.items():
        out[i] = known.opaque(out[i])
    if names:
        out[-1] = {
            name: names[name].opaque(part) if name in names else part
            for name, part in out[-1].items()
        }
    return tuple(out)


def unwrap_statics(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as they were before `wrap_statics`."""
    return tree_map(unwrapped, values)


def unwrapped(leaf: Any) -> Any:
    """A leaf as the caller gave it."""
    return leaf.value if isinstance(leaf, Opaque) else leaf


def static_text(value: Any) -> str:
    """A static value in a few words, for reports."""
    text = attribute(value, "__qualname__", None) or repr_of(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def leaf_annotations(contract: Contract, values: tuple[Any, ...]) -> list[LeafHint]:
    """The annotation of every leaf of a call, None where there is none."""
    hints: list[LeafHint] = []
    for parameter, value in zip(contract.parameters, values, strict=True):
        if isinstance(value, Opaque):
            hints.append(None)
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            hints += [hint for part in value for hint in leaf_hints(parameter.hint, part)]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            hints += [
                hint for name in sorted(value) for hint in leaf_hints(parameter.hint, value[name])
            ]
        else:
            hints += leaf_hints(parameter.hint, value)
    return hints


def is_traced(leaf: Any, hint: LeafHint) -> bool:
    """Whether a leaf of the arguments is traced: an array, or a number whose annotation says that
    it varies. All else is static.
    """
    if (
        isinstance(hint, ScalarHint)
        and isinstance(leaf, (float, int, complex))
        and not isinstance(leaf, bool)
    ):
        return True
    return is_array(leaf)


def _number(hint: LeafHint, value: Any) -> Any:
    return (
        complex(value) if isinstance(hint, ScalarHint) and hint.kind == "complex" else float(value)
    )


def name_of(binder: Binder, path: Path) -> tuple[str, str]:
    """The argument that a leaf belongs to, and its path as a person would write it."""
    first: Any = path[0]
    rest = path[1:]
    if not is_a(first, SequenceKey):
        raise AssertionError(f"{binder.where}: arguments flatten to {first}")
    number: int = first.idx
    parameter = binder.parameters[number]
    if parameter.kind is Parameter.VAR_KEYWORD and rest and is_a(rest[0], DictKey):
        return rest[0].key, f"{rest[0].key}{keystr(rest[1:])}"
    return parameter.name, f"{parameter.name}{keystr(rest)}"


def _all(leaves: list[Any]) -> list[Any]:
    return leaves


def _nothing(leaves: list[Any]) -> tuple[Any, ...]:
    return ()
