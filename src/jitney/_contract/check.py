"""Comparison of one value with a hint. It reads shapes and dtypes only, so tracers and
`jax.ShapeDtypeStruct` work too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.tree_util
import numpy as np

from .._errors import repr_of
from .._signature.annotations import fields_of
from .._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
)
from .kinds import (
    AnyArray,
    Child,
    accepts,
    arrays_in,
    bearable,
    children_of,
    describe,
    dtype_text,
    fit_scalar,
    flatten_to,
    is_array,
    is_number,
    suggest,
    wider,
    with_article,
)
from .sizes import AxisBindings, Mismatch, fit_shape, settle


class Unresolved(str):
    """Note on an array whose annotation contains an undefined name. It becomes a warning too, since
    nobody writes such an annotation on purpose.
    """

    __slots__ = ()


@dataclass(frozen=True)
class BindingScope:
    """Scope in which axis names are bound: one per call, and one per instance of a module."""

    sizes: AxisBindings
    arguments: Mapping[str, object]
    # False inside a module, where values other than arrays are not checked.
    strict: bool = True
    leaf: str | None = None


def mismatch_of(
    hint: Hint,
    value: object,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    """Mismatch between a value and its hint, or None. Sizes are bound on the way."""
    match hint:
        case ArrayHint():
            return _fit_array(hint, value, path, scope)
        case ScalarHint():
            return fit_scalar(hint, value, path) if scope.strict else None
        case StaticHint():
            return _fit_static(hint, value, path, scope) if scope.strict else None
        case UnionHint():
            return _fit_union(hint, value, path, scope)
        case TreeHint():
            return _fit_tree(hint, value, path, scope)
        case ContainerHint():
            return _fit_container(hint, value, path, scope)
        case ModuleHint():
            return _fit_module(hint, value, path, scope)
        case AnyHint(reason=reason):
            if hint.is_unresolved and is_array(value):
                scope.sizes.notes.append(Unresolved(f"{path!r} is not checked: {reason}"))
            elif reason and scope.strict:
                scope.sizes.notes.append(f"{path!r} is not checked: {reason}")
            return None


def _fit_array(
    hint: ArrayHint,
    value: Any,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    if not is_array(value):
        if not scope.strict or (hint.array_like and _accepts_number(hint, value)):
            return None
        return _not_an_array(hint, value, path)
    if not hint.allows(value.dtype) and not (hint.array_like and isinstance(value, np.generic)):
        # The argument may have had 64 bits before JAX converted it.
        if (wide := wider(value.dtype)) is not None and hint.allows(wide):
            return _in_32_bits(hint, value, path)
        return Mismatch(
            f"{path!r} has dtype {dtype_text(value)}, and {hint.text} allows {hint.dtypes_text}.",
            "An annotation says which dtypes the body sees; nothing is cast in silence.",
            f"cast it with `.astype(...)`, or annotate `{suggest(value.dtype)}[Array, ...]`.",
            "J212",
        )
    return fit_shape(
        hint,
        value.shape,
        repr(path),
        scope.sizes,
        scope.arguments,
        scope.leaf,
    )


def _in_32_bits(
    hint: ArrayHint,
    value: AnyArray,
    path: str,
) -> Mismatch:
    """Mismatch for an annotation of 64 bits, whatever the argument was: the body sees the dtype
    after JAX's conversion.
    """
    return Mismatch(
        f"{path!r} reaches the body as {dtype_text(value)}, and {hint.text} allows"
        f" {hint.dtypes_text}.",
        "Without x64 JAX has no numbers of 64 bits: it takes those of NumPy in 32.",
        'decorate with precision="f64", or set `jax.config.update("jax_enable_x64", True)`; '
        f"or annotate `{suggest(value.dtype)}[Array, ...]`, which allows both.",
        "J212",
    )


def _accepts_number(hint: ArrayHint, value: object) -> bool:
    if not is_number(value):
        return False
    kinds = {bool: "bool", int: "int", float: "float", complex: "complex"}
    wanted = next(name for kind, name in kinds.items() if isinstance(value, kind))
    # An int passes for a float, as in Python.
    names = [wanted, "float"] if wanted == "int" else [wanted]
    allowed = [item for item in hint.dtypes or names if isinstance(item, str)]
    return any(item.startswith(tuple(names)) for item in allowed)


class _Number(NamedTuple):
    """Type of Python's numbers, with the dtypes that a number of it may become."""

    kind: type[Any]
    dtypes: tuple[str, ...]


_NUMBERS = (
    _Number(bool, ("bool",)),
    _Number(int, ("int32", "int64", "int8", "uint8", "uint32")),
    _Number(float, ("float32", "float64", "float16")),
    _Number(complex, ("complex64", "complex128")),
)


_LARGEST = sys.float_info.max


def _not_an_array(
    hint: ArrayHint,
    value: object,
    path: str,
) -> Mismatch:
    rule = "An annotation says what the body sees, and nothing is converted in silence."
    if is_number(value):
        fix, rule = (
            _as_array(hint, value),
            "An annotation says what the body sees: a Python number has neither shape nor dtype.",
        )
    elif value is None:
        fix = f"pass an array, or annotate `{hint.text} | None`."
    elif isinstance(value, list | tuple) and all(map(_is_row, value)) and _shape_of(value) is None:
        axis = next(iter(hint.names), "n")
        fix = (
            f'map them as rows: @jitney.optimize(vmap="row", pad={{"{axis}": "pow2"}})'
            " (docs/problems/ragged.md)."
        )
    elif isinstance(value, list | tuple):
        fix = "pass `jnp.asarray(...)` of it, or annotate what it is: `list`, `tuple`."
    else:
        fix = "pass an array, or correct the annotation."
    return Mismatch(
        f"{path!r} is {describe(value)}, and {hint.text} is an array.",
        rule,
        fix,
        "J213",
    )


def _is_row(value: object) -> bool:
    return isinstance(value, list | tuple) or (is_array(value) and value.shape != ())


def _shape_of(value: object) -> tuple[int, ...] | None:
    """Shape of the array that nested lists make; None if their rows have unlike shapes."""
    if not isinstance(value, list | tuple):
        return tuple(value.shape) if is_array(value) else ()
    rows: Sequence[object] = value
    shapes = {_shape_of(row) for row in rows}
    if None in shapes or len(shapes) > 1:
        return None
    return (len(rows), *(next(iter(shapes), None) or ()))


def _as_array(hint: ArrayHint, value: Any) -> str:
    """Advice for passing a Python number where an array is annotated. It never suggests annotating
    `int` or `bool`, which would make the argument static.
    """
    own = next(i for i, number in enumerate(_NUMBERS) if isinstance(value, number.kind))
    # An int may become a float or complex array, but True does not become 1.0.
    wider = _NUMBERS[own : None if own else 1]
    kind = next((number.kind for number in wider if _allows_any(hint, number.dtypes)), None)
    if kind is None or (kind is not int and is_number(value) and abs(value) > _LARGEST):
        return "pass an array, or correct the annotation."
    fix = f"pass `jnp.asarray({repr_of(kind(value))})`"
    if kind not in (float, complex):
        return f"{fix}."
    return f"{fix}, or annotate it `{kind.__name__}`, which is traced."


def _allows_any(hint: ArrayHint, dtypes: Sequence[str]) -> bool:
    return any(hint.allows(np.dtype(name)) for name in dtypes)


def _fit_static(
    hint: StaticHint,
    value: object,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    fits = bearable(value, hint.hint)
    if fits is None:
        scope.sizes.notes.append(f"{path!r} is not checked: beartype does not read `{hint.text}`")
    if fits is not False:
        return None if hint.parts is None else mismatch_of(hint.parts, value, path, scope)

    # An array for a static hint has its own fix: to annotate it as an array.
    if is_array(value):
        name = suggest(value.dtype)
        axes = "" if len(value.shape) == 0 else "..."
        return Mismatch(
            f"{path!r} is {describe(value)}, and is annotated `{hint.text}`.",
            f"`{hint.text}` is static: its value is part of the compiled program, so it cannot be"
            " an array.",
            f'annotate it `{name}[Array, "{axes}"]`, or pass a plain `{hint.text}`.',
            "J214",
        )
    return _wrong_kind(hint, value, path)


def _wrong_kind(
    hint: Hint,
    value: object,
    path: str,
) -> Mismatch:
    return Mismatch(
        f"{path!r} is {describe(value)}, not {with_article(hint.text)}.",
        "An argument must be what its annotation says.",
        f"pass {with_article(hint.text)}, or correct the annotation.",
        "J214",
    )


def _fit_union(
    hint: UnionHint,
    value: object,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    before = scope.sizes.copy()
    tried: list[str] = []

    # Inside a module only the alternatives of the value's kind are tried.
    options = hint.options
    if not scope.strict:
        options = tuple(option for option in options if accepts(option, value))
    if not options:
        return None
    for option in options:
        problem = mismatch_of(option, value, path, scope)
        if problem is None:
            return None
        tried.append(f"{option.text}: {problem.what}")
        # An alternative that did not fit must leave no bindings behind.
        scope.sizes.restore(before)

    listed = "".join(f"\n  not {line}" for line in tried)
    return Mismatch(
        f"{path!r} fits no alternative of {hint.text}:{listed}",
        "A union takes the first alternative that fits.",
        "pass what one alternative describes, or add an"
        f" alternative{_mapped_fix(options, value, path, scope)}.",
    )


def _mapped_fix(
    options: Sequence[Hint],
    value: object,
    path: str,
    scope: BindingScope,
) -> str:
    """Advice for a value that fits an alternative without its first axis. `vmap` goes by the rank
    of an annotation, and a union has several ranks.
    """
    element = _first_element(value)
    if element is None:
        return ""
    before = scope.sizes.copy()
    fits = [mismatch_of(option, element, path, scope) is None for option in options]
    scope.sizes.restore(before)
    if not any(fits):
        return ""
    text = options[fits.index(True)].text.replace("'", '"')
    return f"; if `vmap` is to map its first axis, annotate it {text} alone"


def _first_element(value: object) -> jax.ShapeDtypeStruct | None:
    """Abstract element of an array along its first axis; None if there is no axis."""
    if is_array(value) and value.shape:
        return jax.ShapeDtypeStruct(value.shape[1:], value.dtype)
    return None


def _fit_container(
    hint: ContainerHint,
    value: Any,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    if not isinstance(value, hint.kind):
        return _wrong_kind(hint, value, path) if scope.strict else None
    length = len(value)
    if (
        scope.strict
        and not hint.variadic
        and not isinstance(value, Mapping)
        and length != len(hint.items)
    ):
        return Mismatch(
            f"{path!r} has {length} items, and `{hint.text}` has {len(hint.items)}.",
            "An argument must be what its annotation says.",
            "pass that many items, or correct the annotation.",
        )
    for inner, child, where in children_of(hint, value, path):
        problem = mismatch_of(inner, child, where, scope)
        if problem is not None:
            return problem

    return None


def _fit_tree(
    hint: TreeHint,
    value: object,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    # jaxtyping accepts None for every PyTree.
    if value is None:
        return None
    leaves, structure = flatten_to(hint.leaf, value)
    if hint.structure is not None:
        problem = _fit_structure(hint.structure, structure, path, scope)
        if problem is not None:
            return problem
    for index, (keys, leaf) in enumerate(leaves):
        inner = scope
        if hint.structure is not None:
            # `?n` binds a size for each position in the named structure.
            inner = replace(scope, leaf=f"leaf {index} of {hint.structure}")
        problem = mismatch_of(hint.leaf, leaf, path + jax.tree_util.keystr(keys), inner)
        if problem is not None:
            return problem

    return None


def _fit_structure(
    name: str,
    structure: Hashable,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    known = scope.sizes.structures
    own = structure, repr(path)
    if name.isidentifier():
        first = known.setdefault(name, own)
        return None if first[0] == structure else _two_structures(name, first, own)
    pieces = [piece for piece in name.split() if piece != "..."]
    missing = [piece for piece in pieces if piece not in known]
    if missing:
        scope.sizes.notes.append(
            f"{path!r}: structure '{name}' is not checked: '{missing[0]}' is not bound before it"
        )
        return None
    tree: object = 0

    # "T S" is a tree of structure T whose leaves are trees of structure S: each further name
    # replaces every leaf.
    for piece in pieces:
        inner = _dummy(known[piece][0])
        tree = jax.tree_util.tree_map(functools.partial(_replace, inner), tree)
    wanted = jax.tree_util.tree_structure(tree)

    # "... T" ends in T everywhere; "T ..." begins with T.
    if name.startswith("..."):
        fits = _ends_with(structure, wanted)
    elif name.endswith("..."):
        fits = _starts_with(structure, tree)
    else:
        fits = structure == wanted
    return None if fits else _two_structures(name, (wanted, "the arguments before it"), own)


def _replace(new: object, _old: object) -> object:
    return new


def _dummy(structure: Any) -> object:
    return jax.tree_util.tree_unflatten(structure, [0] * structure.num_leaves)


def _starts_with(structure: Hashable, prefix: object) -> bool:
    try:
        jax.tree_util.tree_map(_replace, prefix, _dummy(structure))
    except ValueError:
        return False
    return True


def _ends_with(structure: Hashable, wanted: object) -> bool:
    def at_end(node: object) -> bool:
        return jax.tree_util.tree_structure(node) == wanted

    nodes = jax.tree_util.tree_leaves(_dummy(structure), is_leaf=at_end)
    return all(map(at_end, nodes))


def _two_structures(
    name: str,
    first: tuple[object, str],
    second: tuple[object, str],
) -> Mismatch:
    return Mismatch(
        f"tree structure '{name}' is {first[0]} from {first[1]} and {second[0]} from {second[1]}.",
        f"Every tree annotated with '{name}' must have the same structure.",
        "pass trees of one structure, or rename it in one annotation.",
    )


def _fit_module(
    hint: ModuleHint,
    value: object,
    path: str,
    scope: BindingScope,
) -> Mismatch | None:
    cls = value.__class__
    fits = bearable(value, hint.cls)
    if fits is None and scope.strict:
        scope.sizes.notes.append(f"{path!r} is not checked: beartype does not read `{hint.text}`")
    if fits is False:
        return _wrong_kind(hint, value, path) if scope.strict else None
    children = list(children_of(hint, value, path))

    # The fields may be used in braces (`{width}`), as may `self`.
    own: dict[str, object] = {}
    if children:
        own = {name: getattr(value, name) for name in fields_of(cls) if hasattr(value, name)}
    inside = BindingScope(AxisBindings(), {**own, "self": value}, strict=False)
    inside.sizes.notes = scope.sizes.notes

    # A module made under `vmap` has the mapped axes in front of every field.
    lead = _lead(children)
    if lead:
        sizes = ", ".join(map(str, lead))
        more = (
            f"each array has {sizes} in front of the axes that `{cls.__name__}` names, and is not"
            " compared with its annotation"
        )
        scope.sizes.notes.append(
            f"{path!r} is a stack of {sizes}: {more}; mapped by `vmap`, each element is"
        )
        return None
    for inner, child, where in children:
        problem = mismatch_of(inner, child, where, inside)
        if problem is not None:
            return _per_instance(problem, value)

    problem = settle(inside.sizes, inside.arguments)
    return None if problem is None else _per_instance(problem, value)


def _lead(children: Sequence[Child]) -> tuple[int, ...]:
    """Extra leading axes of all fields if they agree, as in modules made under `vmap`; ()
    otherwise.
    """
    lead: set[tuple[int, ...]] = set()
    for hint, value, _ in children:
        if not isinstance(hint, ArrayHint | UnionHint) or not is_array(value):
            continue
        array = next(arrays_in(hint), None)
        if array is not None and array.rank is not None:
            extra = max(0, len(value.shape) - array.rank)
            lead.add(tuple(value.shape[:extra]))
    return next(iter(lead)) if len(lead) == 1 else ()


def _per_instance(problem: Mismatch, value: object) -> Mismatch:
    if not problem.rule.startswith("Every argument"):
        return problem
    field = f"Every field of one `{type(value).__name__}`"
    return replace(problem, rule=problem.rule.replace("Every argument", field))


def fits_alone(hint: Hint, value: object) -> bool:
    """Return whether a value fits a hint by itself, whatever the other arguments are."""
    scope = BindingScope(AxisBindings(), {})
    return mismatch_of(hint, value, "", scope) is None
