"""A signature as data, and the comparison of values with it.

It stands after `_annotations.py` (one hint) and `_sizes.py` (one shape): here hints and values are walked together, and
what does not fit becomes a `ContractError`. Shapes and dtypes are enough, so tracers and `jax.ShapeDtypeStruct` will do.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import jax.tree_util
import numpy as np

from ._annotations import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
    dtype_name,
    fields_of,
    hints_of,
)
from ._errors import ContractError, Where, sentence
from ._sizes import Problem, Sizes, fit_shape, settle

_jtu: Any = jax.tree_util  # parts of its types are unknown to pyright


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature."""

    name: str
    kind: int  # a kind of `inspect.Parameter`
    hint: Hint
    has_default: bool
    default: Any = field(default=inspect.Parameter.empty, compare=False, repr=False)


@dataclass(frozen=True)
class Contract:
    """The signature of a function: what each argument and the result should be."""

    where: Where = field(compare=False)
    parameters: tuple[Parameter, ...]
    result: Hint
    unresolved: tuple[str, ...] = ()

    @property
    def axes(self) -> frozenset[str]:
        """Every axis that the signature names, also inside `n+1`."""
        hints = (*(parameter.hint for parameter in self.parameters), self.result)
        return frozenset(name for hint in hints for array in arrays_in(hint) for name in (*array.names, *array.mentions))


@dataclass(frozen=True)
class Match:
    """One array leaf and the annotation that it meets."""

    path: str
    argument: str
    hint: ArrayHint | ScalarHint
    value: Any = field(compare=False)


def contract_of(fn: Callable[..., Any], signature: inspect.Signature, where: Where, namespace: Mapping[str, Any] | None = None) -> Contract:
    """Read a function's annotations. `namespace` helps with names that only the decorating frame knows."""
    hints, result, unresolved = hints_of(fn, namespace)
    parameters = tuple(
        Parameter(
            item.name,
            item.kind,
            hints.get(item.name, AnyHint()),
            item.default is not inspect.Parameter.empty,
            item.default,
        )
        for item in signature.parameters.values()
    )
    return Contract(where, parameters, result, unresolved)


def arrays_in(hint: Hint) -> Iterator[ArrayHint]:
    """Every array annotation inside a hint, but not those of module fields."""
    match hint:
        case ArrayHint():
            yield hint
        case UnionHint(options=inner) | ContainerHint(items=inner):
            for item in inner:
                yield from arrays_in(item)
        case TreeHint(leaf=leaf):
            yield from arrays_in(leaf)
        case _:
            return


def check_arguments(contract: Contract, arguments: Mapping[str, Any]) -> tuple[Sizes, tuple[str, ...]]:
    """Compare arguments with a contract: the sizes they bind, and notes on what was not checked.

    Raises:
        ContractError: If an argument does not fit its annotation, or two disagree on an axis.
    """
    scope = _Scope(Sizes(), arguments)
    sizes = scope.sizes
    for parameter in contract.parameters:
        for path, value in _pieces(parameter, arguments):
            before = sizes.copy()
            problem = _fit(parameter.hint, value, path, scope)
            if problem is not None and value is parameter.default:  # as jaxtyping: a default is not checked
                sizes.restore(before)
                sizes.notes.append(f"{path!r}: its default does not fit {parameter.hint.text}, and is not checked")
            else:
                _raise(contract.where, problem)
    _raise(contract.where, settle(sizes, arguments))
    return sizes, tuple(dict.fromkeys(sizes.notes))


def check_result(contract: Contract, result: Any, sizes: Sizes, arguments: Mapping[str, Any]) -> None:
    """Compare a result with a contract, under the sizes that the arguments bound.

    Raises:
        ContractError: If the result does not fit.
    """
    scope = _Scope(sizes.copy(), arguments)
    _raise(contract.where, _fit(contract.result, result, "result", scope))
    _raise(contract.where, settle(scope.sizes, arguments))


def matches(hint: Hint, value: Any, path: str, argument: str) -> Iterator[Match]:
    """Every array leaf of a value with the annotation that it meets. Nothing is compared."""
    for inner, leaf, where in _leaves(hint, value, path, strict=True):
        yield Match(where, argument, inner, leaf)


def all_matches(contract: Contract, arguments: Mapping[str, Any]) -> Iterator[Match]:
    """`matches` for every argument, `*args` and `**kwargs` item by item."""
    for parameter in contract.parameters:
        for path, value in _pieces(parameter, arguments):
            yield from matches(parameter.hint, value, path, parameter.name)


# Walking a hint and a value together.


def is_array(value: Any) -> bool:
    """Whether a value has a shape and a dtype, as jaxtyping asks."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex)


def _is_node(value: Any) -> bool:
    """Whether a value is a pytree node: a dataclass that is not registered has fields, but no leaves."""
    return not _jtu.all_leaves([value])


def _leaves(hint: Hint, value: Any, path: str, *, strict: bool) -> Iterator[tuple[ArrayHint | ScalarHint, Any, str]]:
    match hint:
        case ArrayHint():
            if is_array(value) or (strict and hint.array_like and _is_number(value)):
                yield hint, value, path
        case ScalarHint():
            if is_array(value) or (strict and _is_number(value)):
                yield hint, value, path
        case UnionHint(options=options):
            alone = (option for option in options if _fits_alone(option, value))
            loose = (option for option in options if _accepts(option, value))
            chosen = next(alone, None) or next(loose, None)
            if chosen is not None:
                yield from _leaves(chosen, value, path, strict=strict)
        case _:
            for inner, child, where in _children(hint, value, path):
                yield from _leaves(inner, child, where, strict=strict and not isinstance(hint, ModuleHint))


def _children(hint: Hint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    """What lies one level below; nothing where the value is of another kind than the hint."""
    match hint:
        case TreeHint(leaf=leaf):
            for keys, child in _flatten(leaf, value)[0]:
                yield leaf, child, path + _jtu.keystr(keys)
        case ContainerHint(kind=kind) if isinstance(value, kind):
            yield from _items(hint, value, path) if not isinstance(value, Mapping) else _entries(hint, value, path)
        case ModuleHint() if _is_node(value) and dataclasses.is_dataclass(value):
            hints = fields_of(type(value))
            for item in dataclasses.fields(value):
                if not item.metadata.get("static") and hasattr(value, item.name):
                    yield hints[item.name], getattr(value, item.name), f"{path}.{item.name}"
        case _:
            return


def _items(hint: ContainerHint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    for index, child in enumerate(value):
        if hint.variadic or index < len(hint.items):
            name = f".{hint.keys[index]}" if hint.keys else f"[{index}]"
            yield hint.items[0 if hint.variadic else index], child, path + name


def _entries(hint: ContainerHint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    for key, child in value.items():
        if hint.variadic or key in hint.keys:
            yield hint.items[0 if hint.variadic else hint.keys.index(key)], child, f"{path}[{key!r}]"


def _flatten(leaf: Hint, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Flatten down to what the leaf hint takes, whatever its shape and dtype: that is where jaxtyping stops."""

    def stop(node: Any) -> bool:
        return not isinstance(leaf, AnyHint) and _accepts(leaf, node)

    return _jtu.tree_flatten_with_path(tree, is_leaf=stop)


def _accepts(hint: Hint, value: Any) -> bool:
    """Whether a value is of the right kind, shapes and dtypes apart."""
    match hint:
        case ArrayHint():
            return is_array(value) or (hint.array_like and _is_number(value))
        case ScalarHint():
            return _fit_scalar(hint, value, "") is None
        case UnionHint(options=options):
            return any(_accepts(option, value) for option in options)
        case ContainerHint(kind=kind):
            return isinstance(value, kind) and all(_accepts(inner, child) for inner, child, _ in _children(hint, value, ""))
        case StaticHint(hint=wanted):
            return _bearable(value, wanted) is not False
        case ModuleHint(cls=cls):
            return _bearable(value, cls) is not False
        case TreeHint() | AnyHint():
            return True


def _fits_alone(hint: Hint, value: Any) -> bool:
    scope = _Scope(Sizes(), {})
    return _fit(hint, value, "", scope) is None


def _pieces(parameter: Parameter, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a parameter: `*args` and `**kwargs` have several."""
    name = parameter.name
    if name not in arguments:
        return
    value = arguments[name]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
        yield from ((f"{name}[{key!r}]", item) for key, item in value.items())
    else:
        yield name, value


# Comparing.


@dataclass(frozen=True)
class _Scope:
    """Where names are bound: one per call, and one per instance of a module."""

    sizes: Sizes
    arguments: Mapping[str, Any]
    strict: bool = True  # False inside a module: what is no array there is not looked at
    leaf: str | None = None


def _raise(where: Where, problem: Problem | None) -> None:
    if problem is not None:
        raise ContractError(sentence(where, problem.what, problem.rule, problem.fix))


def _fit(hint: Hint, value: Any, path: str, scope: _Scope) -> Problem | None:
    match hint:
        case ArrayHint():
            return _fit_array(hint, value, path, scope)
        case ScalarHint():
            return _fit_scalar(hint, value, path) if scope.strict else None
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
            if reason and scope.strict:
                scope.sizes.notes.append(f"{path!r} is not checked: {reason}")
            return None


def _fit_array(hint: ArrayHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    if not is_array(value):
        if not scope.strict:
            return None
        return None if hint.array_like and _number_allowed(hint, value) else _not_an_array(hint, value, path)
    if not hint.allows(value.dtype) and not (hint.array_like and isinstance(value, np.generic)):
        return Problem(
            f"{path!r} has dtype {_dtype(value)}, and {hint.text} allows {hint.allowed}.",
            "An annotation says which dtypes the body sees; nothing is cast in silence.",
            f"cast it with `.astype(...)`, or annotate `{_suggest(value.dtype)}[Array, ...]`.",
        )
    return fit_shape(hint, value.shape, repr(path), scope.sizes, scope.arguments, scope.leaf)


def _number_allowed(hint: ArrayHint, value: Any) -> bool:
    if not _is_number(value):
        return False
    kinds = {bool: "bool", int: "int", float: "float", complex: "complex"}
    wanted = next(name for kind, name in kinds.items() if isinstance(value, kind))
    names = [wanted, "float"] if wanted == "int" else [wanted]
    allowed = hint.dtypes or tuple(names)
    return any(isinstance(item, str) and item.startswith(name) for item in allowed for name in names)


def _not_an_array(hint: ArrayHint, value: Any, path: str) -> Problem:
    number = _is_number(value)
    kind = "float" if isinstance(value, float) else type(value).__name__
    fix = f"pass `jnp.asarray({value!r})`, or annotate it `{kind}`." if number else "pass an array, or correct the annotation."
    return Problem(
        f"{path!r} is {_describe(value)}, and {hint.text} is an array.",
        "An annotation says what the body sees: a Python number has neither shape nor dtype.",
        fix,
    )


def _fit_scalar(hint: ScalarHint, value: Any, path: str) -> Problem | None:
    rule = f"`{hint.kind}` is a number of rank 0: a Python number, or an array without axes."
    if not is_array(value):
        kinds = (int, float) if hint.kind == "float" else (int, float, complex)
        if isinstance(value, kinds) and not isinstance(value, bool):
            return None
        return Problem(f"{path!r} is {_describe(value)}, not a `{hint.kind}`.", rule, f"pass a {hint.kind}.")
    if len(value.shape) != 0:
        return Problem(
            f"{path!r} is {_describe(value)}, not a `{hint.kind}`.",
            rule,
            f'pass a number, annotate `{_suggest(value.dtype)}[Array, "..."]`, or give the extra axis to `vmap`.',
        )
    kinds = (np.floating, np.integer, *((np.complexfloating,) if hint.kind == "complex" else ()))
    if any(jnp.issubdtype(value.dtype, kind) for kind in kinds):
        return None
    suggestion = f'annotate `{_suggest(value.dtype)}[Array, ""]`, or cast it with `.astype(...)`.'
    return Problem(f"{path!r} has dtype {_dtype(value)}, and is annotated `{hint.kind}`.", rule, suggestion)


def _fit_static(hint: StaticHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    fits = _bearable(value, hint.hint)
    if fits is None:
        scope.sizes.notes.append(f"{path!r} is not checked: beartype does not read `{hint.text}`")
    if fits is not False:
        return None if hint.parts is None else _fit(hint.parts, value, path, scope)
    if is_array(value):
        name = _suggest(value.dtype)
        return Problem(
            f"{path!r} is {_describe(value)}, and is annotated `{hint.text}`.",
            f"`{hint.text}` is static: its value is part of the compiled program, so it cannot be an array.",
            f'annotate it `{name}[Array, "{"" if len(value.shape) == 0 else "..."}"]`, or pass a plain `{hint.text}`.',
        )
    return _wrong_kind(hint, value, path)


def _wrong_kind(hint: Hint, value: Any, path: str) -> Problem:
    return Problem(
        f"{path!r} is {_describe(value)}, not a `{hint.text}`.",
        "An argument must be what its annotation says.",
        f"pass a `{hint.text}`, or correct the annotation.",
    )


def _fit_union(hint: UnionHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    before = scope.sizes.copy()
    tried: list[str] = []
    options = hint.options if scope.strict else [option for option in hint.options if _accepts(option, value)]
    if not options:
        return None
    for option in options:
        problem = _fit(option, value, path, scope)
        if problem is None:
            return None
        tried.append(f"{option.text}: {problem.what}")
        scope.sizes.restore(before)
    listed = "".join(f"\n  not {line}" for line in tried)
    return Problem(
        f"{path!r} fits no alternative of {hint.text}:{listed}",
        "A union takes the first alternative that fits.",
        "pass what one alternative describes, or add an alternative.",
    )


def _fit_container(hint: ContainerHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    if not isinstance(value, hint.kind):
        return _wrong_kind(hint, value, path) if scope.strict else None
    length = len(value)
    if scope.strict and not hint.variadic and not isinstance(value, Mapping) and length != len(hint.items):
        return Problem(
            f"{path!r} has {length} items, and `{hint.text}` has {len(hint.items)}.",
            "An argument must be what its annotation says.",
            "pass that many items, or correct the annotation.",
        )
    for inner, child, where in _children(hint, value, path):
        problem = _fit(inner, child, where, scope)
        if problem is not None:
            return problem
    return None


def _fit_tree(hint: TreeHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    if value is None:  # jaxtyping takes None for every PyTree
        return None
    leaves, structure = _flatten(hint.leaf, value)
    problem = None if hint.structure is None else _fit_structure(hint.structure, structure, path, scope)
    if problem is not None:
        return problem
    for index, (keys, leaf) in enumerate(leaves):
        inner = scope if hint.structure is None else replace(scope, leaf=f"leaf {index} of {hint.structure}")
        problem = _fit(hint.leaf, leaf, path + _jtu.keystr(keys), inner)
        if problem is not None:
            return problem
    return None


def _fit_structure(name: str, structure: Any, path: str, scope: _Scope) -> Problem | None:
    known = scope.sizes.structures
    if name.isidentifier():
        first, setter = known.setdefault(name, (structure, repr(path)))
        return None if first == structure else _two_structures(name, (first, setter), (structure, repr(path)))
    pieces = [piece for piece in name.split() if piece != "..."]
    missing = [piece for piece in pieces if piece not in known]
    if missing:
        scope.sizes.notes.append(f"{path!r}: structure '{name}' is not checked: '{missing[0]}' is not bound before it")
        return None
    tree: Any = 0
    for piece in pieces:
        inner = _dummy(known[piece][0])
        tree = _jtu.tree_map(functools.partial(_replace, inner), tree)
    wanted = _jtu.tree_structure(tree)
    if name.startswith("..."):
        fits = _ends_with(structure, wanted)
    elif name.endswith("..."):
        fits = _starts_with(structure, tree)
    else:
        fits = structure == wanted
    return None if fits else _two_structures(name, (wanted, "the arguments before it"), (structure, repr(path)))


def _replace(new: Any, _old: Any) -> Any:
    return new


def _dummy(structure: Any) -> Any:
    return _jtu.tree_unflatten(structure, [0] * structure.num_leaves)


def _starts_with(structure: Any, prefix: Any) -> bool:
    try:
        _jtu.tree_map(_replace, prefix, _dummy(structure))
    except ValueError:
        return False
    return True


def _ends_with(structure: Any, wanted: Any) -> bool:
    def at_end(node: Any) -> bool:
        return _jtu.tree_structure(node) == wanted

    return all(at_end(node) for node in _jtu.tree_leaves(_dummy(structure), is_leaf=at_end))


def _two_structures(name: str, first: tuple[Any, str], second: tuple[Any, str]) -> Problem:
    return Problem(
        f"tree structure '{name}' is {first[0]} from {first[1]} and {second[0]} from {second[1]}.",
        f"Every tree annotated with '{name}' must have the same structure.",
        "pass trees of one structure, or rename it in one annotation.",
    )


def _fit_module(hint: ModuleHint, value: Any, path: str, scope: _Scope) -> Problem | None:
    cls = value.__class__
    fits = _bearable(value, hint.cls)
    if fits is None and scope.strict:
        scope.sizes.notes.append(f"{path!r} is not checked: beartype does not read `{hint.text}`")
    if fits is False:
        return _wrong_kind(hint, value, path) if scope.strict else None
    children = list(_children(hint, value, path))
    own = {name: getattr(value, name) for name in fields_of(cls) if hasattr(value, name)} if children else {}
    inside = _Scope(Sizes(), {**own, "self": value}, strict=False)
    inside.sizes.notes = scope.sizes.notes
    if _is_stacked(children):
        scope.sizes.notes.append(f"{path!r} is not checked: its arrays have leading axes more than `{cls.__name__}` names")
        return None
    for inner, child, where in children:
        problem = _fit(inner, child, where, inside)
        if problem is not None:
            return _per_instance(problem, value)
    problem = settle(inside.sizes, inside.arguments)
    return None if problem is None else _per_instance(problem, value)


def _is_stacked(children: list[tuple[Hint, Any, str]]) -> bool:
    """Whether all fields have the same further leading axes, as modules made under `vmap` have."""
    lead: set[tuple[int, ...]] = set()
    for hint, value, _ in children:
        array = next(arrays_in(hint), None) if isinstance(hint, ArrayHint | UnionHint) else None
        if array is not None and array.rank is not None and is_array(value):
            lead.add(tuple(value.shape[: max(0, len(value.shape) - array.rank)]))
    return len(lead) == 1 and lead != {()}


def _per_instance(problem: Problem, value: Any) -> Problem:
    if not problem.rule.startswith("Every argument"):
        return problem
    return replace(problem, rule=problem.rule.replace("Every argument", f"Every field of one `{type(value).__name__}`"))


# Words.


def _bearable(value: Any, hint: Any) -> bool | None:
    """What beartype says; None where it cannot say. It is imported when it is first asked: that takes longer than most checks."""
    from beartype.door import is_bearable
    from beartype.roar import BeartypeException

    try:
        return is_bearable(value, hint)
    except BeartypeException:
        return None


def _describe(value: Any) -> str:
    if is_array(value):
        return f"an array of dtype {_dtype(value)} and shape {tuple(value.shape)}"
    if value is None:
        return "None"
    if _is_number(value) or isinstance(value, str):
        return f"the {type(value).__name__} {value!r}"
    return f"a {type(value).__name__}"


def _dtype(value: Any) -> str:
    return str(value.dtype)


def _suggest(dtype: Any) -> str:
    """The jaxtyping name for a dtype."""
    name = dtype_name(dtype)
    starts = {"bool": "Bool", "uint": "UInt", "int": "Int", "float": "Float", "bfloat": "Float", "complex": "Complex"}
    return next((hint for start, hint in starts.items() if name.startswith(start)), "Key" if "key" in name else "Shaped")
