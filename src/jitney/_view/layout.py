"""Layout of a call: which leaves of its arguments are arrays, which are static, and how the
arguments are rebuilt from them.

A `Layout` belongs to one tree structure with one type for each leaf, so it is found by a single
dictionary look-up, and its work in a warm call is to pick the arrays out of a list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from typing import Any, TypeVar

import jax
import numpy as np
from jax.tree_util import DictKey, SequenceKey, tree_flatten_with_path

from .._contract.contract import Contract
from .._errors import ContractError, StaticError, repr_of
from .._jax.stand_ins import unflatten_stand_ins
from .._jax.trees import (
    Path,
    Tracer,
    attribute,
    canonicalize_dtype,
    keystr,
    tree_map,
    tree_unflatten,
)
from .._jax.typed import Array, DType
from .._signature.binding import Binder
from .._signature.hints import ArrayHint, ScalarHint, StaticHint
from .._signature.records import refuse_records
from .._values.array_likes import a_kind, array_like_error, array_likes, means_more, numbers_of
from .._values.copies import Copies, snapshot
from .._values.mutable_objects import article, first_consumable
from .._values.recent_statics import RecentStatics
from .._values.static_once import Static
from .._values.static_values import Opaque, Unkeyed, has_hash, keyer_of, static_key_error
from .._values.strict_keys import strict_key
from .field_axes import InField, axes_in_fields
from .numbers import data_numbers
from .static_fields import copy_loose, loose_parts
from .taken_apart import may_be_taken_apart, record_of_leaves, whole_structure
from .view import Leaf, LeafHint, View, is_array, leaf_hints

_T = TypeVar("_T")
_Pick = Callable[[list[Any]], Sequence[Array]]
"""Function from the leaves of a call to its arrays."""
# Static keys remembered for one layout. Beyond this number all are dropped, and have to be traced
# again.
MAX_ENTRIES = 4096


class Layout:
    """Split of calls of one tree structure, with one type for each leaf, into arrays and static
    values.

    Traced is what `is_traced` calls so (arrays, keys, numbers whose annotation says so), and the
    numbers that `data_numbers` takes for data; a number of `held` is static though it is data.
    """

    def __init__(
        self,
        binder: Binder,
        contract: Contract,
        values: tuple[object, ...],
        donate: tuple[str, ...],
        constants: int = 0,
        held: Mapping[int, str] | None = None,
    ):
        self._binder, self._contract, self._donate = binder, contract, donate
        paths, self.treedef = tree_flatten_with_path(values)
        leaves = [leaf for _, leaf in paths]
        hints = leaf_annotations(contract, values)
        indices = range(len(leaves))
        self.held = held or {}
        """Numbers that would be data, but whose values the body needs while it is traced: indices
        among the leaves, with the reason."""
        self.unannotated = data_numbers(contract, values, leaves).difference(self.held)
        """Numbers that are traced though no annotation says so."""
        by_name = {parameter.name: parameter.hint for parameter in contract.parameters}
        self.declared = {name for name, hint in by_name.items() if isinstance(hint, StaticHint)}
        """Arguments that their annotations call static."""
        self._python_numbers = frozenset(i for i in indices if _is_number(leaves[i]))
        alternatives = {i for i in indices if _is_alternative(leaves[i], hints[i])}
        self.numbers = self.unannotated.union(alternatives).difference(self.held)
        """Numbers that are traced unless the body needs their values."""
        self.dynamic = tuple(
            i
            for i in indices
            if i in self.numbers or (i not in self.held and is_traced(leaves[i], hints[i]))
        )
        self.static = tuple(sorted(set(indices) - set(self.dynamic)))

        self._where = binder.where
        self.names = tuple(name_of(binder, path) for path, _ in paths)
        self.donated = tuple(
            n
            for n, i in enumerate(self.dynamic)
            if self.names[i][0] in donate and i not in self.numbers
        )
        self.nested = is_nested_trace(leaves)

        self._refuse_lost_meanings(leaves)
        self._refuse_unnamed_statics(values)
        for i in self.static:
            # This comes before the key is computed, because the value may have no hash.
            self._refuse_array_likes(leaves[i], self.names[i])

        self.pick = self._picker(leaves, hints)
        kinds = tuple(type(leaves[i]) for i in self.static)
        keyers = map(keyer_of, kinds)
        self._keyers = tuple(zip(self.static, keyers, strict=True))

        self.form: tuple[object, ...] = (
            self.treedef,
            strict_key([self.treedef]),
            self.dynamic,
            kinds,
            self.numbers,
        )
        """Parts that must be equal in two layouts for their calls to share programs."""
        self.record_of = record_of_leaves(values)
        """Leaves in frozen dataclasses that are taken apart -> number of the outermost one."""
        self.whole = whole_structure(values) if self.record_of else self.treedef
        """Structure that unflattens to what the caller passed."""
        self.may_have_records = any(map(may_be_taken_apart, kinds))
        """True if other calls of this structure may have frozen dataclasses to take apart."""
        self.loose = loose_parts(values)
        """Values beside the leaves that traces can see and callers can change in place."""
        self.constants = constants
        """Number of static values that are the same in all of its calls, as the key has them."""

        # The entries that run its calls are stored here, since a call finds its layout first.
        # `only` is the single entry of a layout whose calls have no other static values.
        self.only: Any = None
        self.entries: dict[Hashable, Any] = {}
        self.holding: dict[frozenset[int], Layout] = {}
        """Layouts of the same calls with more numbers held."""
        self.wider: Layout | None = None
        """The layout that this one is among `holding` of."""
        # Most functions that are called twice alike are called many times.
        self._called_again = False

    def is_called_again(self) -> bool:
        """Return whether this was asked before, and note that it is asked."""
        before, self._called_again = self._called_again, True
        return before

    def with_held(self, held: Mapping[int, str], leaves: Sequence[object]) -> Layout:
        """Layout of the same calls with these numbers static too, each with its reason.

        Args:
            held: Indices among the leaves, with reasons.
            leaves: Leaves of a call.
        """
        made = Layout(
            self._binder,
            self._contract,
            tree_unflatten(self.treedef, leaves),
            self._donate,
            self.constants,
            {**self.held, **held},
        )
        made.wider = self
        return made

    def _refuse_lost_meanings(self, leaves: Sequence[object]) -> None:
        """Check that JAX sees all information in the arrays. This depends on types only, so it is
        checked once per layout.

        Raises:
            ContractError: An array of NumPy's has a mask, a unit or fields.
        """
        for i in self.dynamic:
            leaf, path = leaves[i], self.names[i][1]
            if means_more(type(leaf)):
                raise ContractError(
                    self._where,
                    f"{path!r} is {a_kind(leaf)}, which is more than its numbers.",
                    "Of a subclass of NumPy's array JAX sees the numbers alone: a mask or a unit"
                    " would be lost.",
                    f"{numbers_of(leaf, path)}.",
                    code="J213",
                )

    def _refuse_unnamed_statics(self, values: tuple[object, ...]) -> None:
        """Check that each `jitney.static(...)` that is a whole argument is named in `static`.

        Raises:
            ContractError: One is not: the body would get the object in place of its value.
        """
        for name, value in self._binder.arguments(values):
            if isinstance(value, Static):
                raise ContractError(
                    self._where,
                    f"{name!r} is a jitney.static(...), and `static` does not name it.",
                    "It stands for its value where an argument is static as a whole.",
                    f'write @optimize(static="{name}"), or pass the value itself.',
                    code="J213",
                )

    def refuse_unreadable(self, leaves: Sequence[object]) -> None:
        """Check that a trace can read the static values of a call on behalf of all calls that will
        share its program.

        Raises:
            StaticError: A value is or contains an iterator or a coroutine, which the trace would
                consume.
            ContractError: A value looks like an array, whose numbers may change later.
        """
        for i in self.static:
            leaf, (argument, path) = leaves[i], self.names[i]
            self._refuse_used_up(repr(path), unwrap_static(leaf))
            self._refuse_array_likes(leaf, (argument, path))
        for part in self.loose:
            self._refuse_used_up("a static field", part)
            for found in array_likes(part):
                raise array_like_error(self._where, "a static field is or holds", found, "x")

    def _refuse_array_likes(self, leaf: object, name: tuple[str, str]) -> None:
        argument, path = name
        refuse_records(self._where, path, argument, leaf)
        for found in () if isinstance(leaf, Opaque) else array_likes(leaf):
            raise array_like_error(
                self._where, f"{path!r} {'is' if found is leaf else 'holds'}", found, path
            )

    def _refuse_used_up(self, what: str, value: object) -> None:
        used_up = first_consumable(value)
        if used_up is not None:
            raise StaticError(
                self._where,
                f"{what} {'is' if used_up is value else 'holds'} {article(used_up)}.",
                "It can be read once, and what is traced once serves many calls.",
                "pass a list, a tuple or an array.",
                code="J311",
            )

    def remember(self, key: Hashable, entry: _T) -> _T:
        """Store an entry under the key of its static values."""
        if len(self.static) == self.constants and not self.loose:
            self.only = entry
        elif len(self.entries) >= MAX_ENTRIES:
            self.entries.clear()
        self.entries[key] = entry
        return entry

    def _picker(
        self,
        leaves: Sequence[object],
        hints: Sequence[LeafHint],
    ) -> _Pick:
        """Function from the leaves of a call to its arrays, with as little work as the types
        allow.
        """
        whole = {i: hints[i] for i in self.dynamic if _is_converted(hints[i], leaves[i])}
        # An int passed for a float becomes a float, or the function would be compiled once more for
        # ints.
        if whole:
            return lambda all_: [
                _number(whole[i], all_[i]) if i in whole else all_[i] for i in self.dynamic
            ]
        if not self.static:
            return _all_leaves
        if len(self.dynamic) == 1:
            only = self.dynamic[0]
            return lambda all_: (all_[only],)
        itemgetter = operator.itemgetter
        return itemgetter(*self.dynamic) if self.dynamic else _nothing

    def key(self, leaves: Sequence[object]) -> tuple[Hashable, ...]:
        """Compute the key of the static values of a call. Their types are part of `form`."""
        try:
            # `tuple([...])` is faster than a generator, and every warm call with static values runs
            # this line.
            return tuple(
                [leaves[i] if keyer is None else keyer(leaves[i]) for i, keyer in self._keyers]
            )
        except Unkeyed:
            raise self._static_error(leaves, self.static) from None

    def check_hashes(self, leaves: Sequence[object]) -> None:
        """Check that the static values have the `hash` that their classes promise; the look-up of
        an entry has failed.

        Raises:
            StaticError: A value has none, for instance because it contains a list.
        """
        unhashed = [i for i, keyer in self._keyers if keyer is None and not has_hash(leaves[i])]
        if unhashed:
            raise self._static_error(leaves, unhashed) from None

    def _static_error(
        self,
        leaves: Sequence[object],
        at: Sequence[int],
    ) -> StaticError:
        single = [i for i in at if not isinstance(leaves[i], Opaque)]
        arguments = [(self.names[i][1], leaves[i]) for i in single]
        return static_key_error(self._where, arguments)

    def statics(self, leaves: Sequence[object]) -> tuple[object, ...]:
        """Copies of the static values of a call, in the order of `static`."""
        copies = Copies()
        return tuple(self._copy_static(i, leaves[i], copies) for i in self.static)

    def _copy_static(self, i: int, leaf: object, copies: Copies) -> object:
        try:
            return snapshot(unwrap_static(leaf), copies)
        except Unkeyed as problem:
            _, path = self.names[i]
            raise problem.of(self._where, f"static {path!r}") from None

    def values(
        self,
        arrays: Sequence[object],
        statics: Sequence[object],
        *,
        for_body: bool = False,
    ) -> tuple[object, ...]:
        """Rebuild the value of each parameter from arrays (or stand-ins for them) and static
        values. For a body, static fields are copied.
        """
        return self._unflatten(self.whole, arrays, statics, for_body=for_body)

    def trees(self, arrays: Sequence[object], statics: Sequence[object]) -> tuple[object, ...]:
        """Rebuild the tree of each parameter, whose leaves are those of this layout: frozen
        dataclasses stay taken apart.
        """
        return self._unflatten(self.treedef, arrays, statics, for_body=False)

    def _unflatten(
        self,
        treedef: Hashable,
        arrays: Sequence[object],
        statics: Sequence[object],
        *,
        for_body: bool,
    ) -> tuple[object, ...]:
        count = len(self.dynamic) + len(self.static)
        leaves: list[object] = [None] * count
        for i, array in zip(self.dynamic, arrays, strict=True):
            leaves[i] = array
        for i, value in zip(self.static, statics, strict=True):
            leaves[i] = value
        if not for_body:
            return unflatten_stand_ins(treedef, leaves)
        values = tree_unflatten(treedef, leaves)
        if self.loose:
            copy_loose(values)
        return values

    def has(
        self,
        treedef: Hashable,
        leaves: Sequence[object],
        arrays: Sequence[Array],
    ) -> bool:
        """Return whether this is the layout of a call with this structure, these leaves and
        arrays.
        """
        static = [i for i in self.static if i < len(leaves)]
        kinds = tuple(type(leaves[i]) for i in static)
        form = (treedef, strict_key([treedef]), self.dynamic, kinds, self.numbers)
        if form != self.form:
            return False
        picked = self.pick(list(leaves))
        return all(map(operator.is_, picked, arrays))

    def static_names(self) -> tuple[str, ...]:
        return tuple(self.names[i][1] for i in self.static)

    def view(
        self,
        contract: Contract,
        arrays: Sequence[object],
        statics: Sequence[object],
    ) -> View:
        """View of the outermost stage."""
        # A static value may be a pytree itself; wrapped, it counts as one leaf.
        wrapped = [Opaque.holding(value) for value in statics]
        values = self.trees(arrays, wrapped)
        hints = leaf_annotations(contract, values)
        fields = axes_in_fields(values)

        leaves: list[Leaf] = []
        for i, array in zip(self.dynamic, arrays, strict=True):
            leaf = _leaf(self.names[i], hints[i], fields[i], array)
            leaves.append(replace(leaf, is_number=i in self._python_numbers))
        return View(tuple(leaves))


def _leaf(
    name: tuple[str, str],
    hint: LeafHint,
    inside: InField | None,
    array: object,
) -> Leaf:
    argument, path = name
    shape, dtype, weak = aval_parts(array)
    field = None if inside is None else inside.for_options
    return Leaf(path, argument, shape, dtype, weak, hint, field)


def is_nested_trace(leaves: Iterable[object]) -> bool:
    """Return whether a call with these leaves stands inside another trace."""
    for leaf in leaves:  # noqa: SIM110 - a generator takes three times as long
        if isinstance(leaf, Tracer):
            return True
    return False


def jit_is_off() -> bool:
    """Return whether `jax.disable_jit()` is active, under which whoever debugs wants to see
    values.
    """
    options: Any = jax.config
    return options.jax_disable_jit


def aval_parts(array: Any) -> tuple[tuple[int, ...], DType, bool]:
    """Shape, dtype (as JAX converts it) and weak type of an array, a tracer, an abstract value or a
    Python number.
    """
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return (), canonicalize_dtype(type(array)), True
    # Random keys are of no type of NumPy.
    if isinstance(dtype, np.dtype):
        dtype = canonicalize_dtype(dtype)
    weak = bool(getattr(array, "weak_type", False))
    return tuple(array.shape), dtype, weak


def wrap_statics(
    values: tuple[Any, ...],
    positions: Mapping[int, RecentStatics],
    names: Mapping[str, RecentStatics],
) -> tuple[object, ...]:
    """Wrap the arguments at `positions` as static leaves, and likewise those in `names` among
    `**kwargs`, which come last.
    """
    out = list(values)
    for i, known in positions.items():
        out[i] = known.opaque(out[i])
    if names:
        keywords = dict(out[-1])
        for name, part in out[-1].items():
            if name in names:
                keywords[name] = names[name].opaque(part)
        out[-1] = keywords
    return tuple(out)


def unwrap_statics(values: tuple[object, ...]) -> tuple[object, ...]:
    """Inverse of `wrap_statics`."""
    return tree_map(unwrap_static, values)


def unwrap_static(leaf: object) -> object:
    """Leaf as the caller passed it."""
    return leaf.value if isinstance(leaf, Opaque) else leaf


def static_text(value: object) -> str:
    """Short text of a static value, for reports."""
    text = attribute(value, "__qualname__", None) or repr_of(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def leaf_annotations(contract: Contract, values: tuple[Any, ...]) -> list[LeafHint]:
    """Annotation of every leaf of a call, None for leaves without one."""
    hints: list[LeafHint] = []
    for parameter, value in zip(contract.parameters, values, strict=True):
        if isinstance(value, Opaque):
            hints.append(None)
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            for part in value:
                hints += leaf_hints(parameter.hint, part)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            # JAX flattens a dict in the order of its sorted keys.
            for name in sorted(value):
                hints += leaf_hints(parameter.hint, value[name])
        else:
            hints += leaf_hints(parameter.hint, value)
    return hints


def is_traced(leaf: object, hint: LeafHint) -> bool:
    """Return whether a leaf of the arguments is traced by its kind or annotation: an array, or a
    number annotated as `float` or `complex`.
    """
    return is_array(leaf) or (_is_number(leaf) and isinstance(hint, ScalarHint))


def _is_alternative(leaf: object, hint: LeafHint) -> bool:
    """Return whether a leaf is a number where its annotation takes arrays too, as
    `Float[ArrayLike, ""]` and `float | Array` do.
    """
    if isinstance(hint, ScalarHint):
        return hint.is_alternative and _is_number(leaf)
    return isinstance(hint, ArrayHint) and hint.array_like and _is_number(leaf)


def _is_number(leaf: object) -> bool:
    # A bool is an int to Python, but not a number here.
    return isinstance(leaf, (float, int, complex)) and not isinstance(leaf, (bool, np.generic))


def _is_converted(hint: LeafHint, leaf: object) -> bool:
    """Return whether a leaf is an int that an annotation calls a float or a complex number."""
    if type(leaf) is not int:
        return False
    if isinstance(hint, ArrayHint):
        return hint.array_like and not hint.allows(np.dtype(np.int32))
    return isinstance(hint, ScalarHint)


def _number(hint: LeafHint, value: int) -> Any:
    is_complex = isinstance(hint, ScalarHint) and hint.kind == "complex"
    return complex(value) if is_complex else float(value)


def name_of(binder: Binder, path: Path) -> tuple[str, str]:
    """Argument that a leaf belongs to, and the leaf's path as a person would write it."""
    first = path[0]
    rest = path[1:]
    if not isinstance(first, SequenceKey):
        raise AssertionError(f"{binder.where}: arguments flatten to {first}")
    number: int = first.idx
    parameter = binder.parameters[number]
    if parameter.kind is Parameter.VAR_KEYWORD and rest and isinstance(rest[0], DictKey):
        keyword = rest[0].key
        return keyword, f"{keyword}{keystr(rest[1:])}"
    return parameter.name, f"{parameter.name}{keystr(rest)}"


def _all_leaves(leaves: list[Any]) -> Sequence[Array]:
    return leaves


def _nothing(leaves: object) -> tuple[()]:
    return ()
