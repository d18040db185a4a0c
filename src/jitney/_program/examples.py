"""Arguments for a program that is not being called: examples where they are given, else abstract
values from the annotations and sizes.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from inspect import Parameter as Kind
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax

from .._contract.contract import Contract, Parameter, all_matches
from .._contract.sizes import Unknown, evaluate
from .._errors import AnnotationWarning, ContractError, format_error, name_fix, shortlist
from .._jax.trees import is_node
from .._owners import users_level
from .._signature.annotations import fields_of
from .._signature.hints import ArrayHint, ContainerHint, Dim, Hint, ModuleHint, ScalarHint
from .._view.field_axes import axes_of_instances

if TYPE_CHECKING:
    from .core import CompiledFunction

_VARIABLE = (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)


def abstract_values(
    core: CompiledFunction,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    sizes: Mapping[str, int] | None,
    *,
    warn: bool = True,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return a complete call: the given arguments, and an abstract value for each parameter that
    was left out. A guess at `vmap` is a warning.

    Raises:
        ContractError: A size is missing, unknown or malformed, or a parameter needs an example.
    """
    sizes = {} if sizes is None else sizes
    try:
        given = core.binder.signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise core.binder.misfit(error, tuple(kwargs)) from None
    _check_sizes(core, sizes, given.arguments)

    # Explicit sizes override those of the examples.
    examples = dict(given.arguments)
    known = {**sizes_of_examples(core.contract, examples), **sizes}
    for parameter in core.contract.parameters:
        if parameter.name not in given.arguments and parameter.kind not in _VARIABLE:
            value = _abstract_value(core, parameter, known, given.arguments)
            if value is not None:
                given.arguments[parameter.name] = value

    if warn:
        _warn_unmapped_arrays(core, examples, given.arguments, sizes)

    names = [parameter.name for parameter in core.contract.parameters]
    ordered = {name: given.arguments[name] for name in names if name in given.arguments}
    given.arguments.clear()
    given.arguments.update(ordered)
    return given.args, given.kwargs


def _check_sizes(
    core: CompiledFunction,
    sizes: object,
    given: Mapping[str, object],
) -> None:
    if not isinstance(sizes, Mapping):
        raise ContractError(
            core.where,
            f"sizes={sizes!r}.",
            "Sizes are given by the names of axes.",
            'write sizes={"n": 100}.',
            code="J216",
        )
    held = map(axes_of_instances, given.values())
    known = core.axes.union(*held, (axis.name for axis in core.options.vmap))
    for name, size in sizes.items():
        if name not in known:
            raise ContractError(
                core.where,
                f"sizes names {name!r}, which is not an axis.",
                "The axes of the signature, of the fields of its classes and of `vmap` are"
                f" {', '.join(sorted(known)) or 'none'}.",
                name_fix(str(name), known),
                code="J216",
            )
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ContractError(
                core.where,
                f"axis {name!r} has size {size!r}.",
                "A size is an int, 0 or more.",
                "pass one.",
                code="J216",
            )


def sizes_of_examples(contract: Contract, given: Mapping[str, object]) -> dict[str, int]:
    """Return the sizes of named axes in the examples, where the ranks fit."""
    present = Contract(contract.where, _present(contract, given), contract.result)
    sizes: dict[str, int] = {}
    for match in all_matches(present, given):
        shape = getattr(match.value, "shape", ())
        if not isinstance(match.hint, ArrayHint) or match.hint.rank != len(shape):
            continue
        for dim, size in zip(match.hint.dims, shape, strict=True):
            if dim.kind == "named" and dim.name is not None and not dim.broadcast:
                sizes[dim.name] = size
    return sizes


def _present(contract: Contract, given: Mapping[str, object]) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in contract.parameters if parameter.name in given)


def _abstract_value(
    core: CompiledFunction,
    parameter: Parameter,
    sizes: Mapping[str, int],
    given: Mapping[str, object],
) -> object:
    """Return an abstract value built from an annotation; None leaves the parameter to its
    default.
    """
    if parameter.has_default and has_fields(parameter.hint):
        return None
    return _value_of(core, parameter, parameter.hint, parameter.name, sizes, given)


def _value_of(
    core: CompiledFunction,
    parameter: Parameter,
    hint: Hint,
    path: str,
    sizes: Mapping[str, int],
    given: Mapping[str, object],
) -> object:
    """Return an abstract value for a parameter, or for the field of a class in it, at this path."""
    if isinstance(hint, ScalarHint) and not parameter.has_default:
        return 0.0 if hint.kind == "float" else 0j

    if isinstance(hint, (ContainerHint, ModuleHint)) and has_fields(hint):
        return abstract_instance(
            hint,
            path,
            lambda inner, path: _value_of(core, parameter, inner, path, sizes, given),
        )

    if isinstance(hint, ArrayHint) and hint.default_dtype() is not None:
        known = [_size(dim, sizes, given) for dim in hint.dims]
        missing = [str(size.reason) for size in known if isinstance(size, Unknown)]
        if not missing:
            shape = [size for size in known if not isinstance(size, Unknown)]
            mapped = _insert_vmap_axes(core, path, shape, sizes)
            return jax.ShapeDtypeStruct(mapped, hint.default_dtype())
        if not parameter.has_default:
            raise _no_size(core, parameter.name, path, hint, missing)

    if parameter.has_default:
        return None
    raise ContractError(
        core.where,
        f"nothing tells what {path!r} is.",
        "Sizes describe what is annotated with a dtype and named axes: an argument, or each field"
        " of its class; everything else needs an example.",
        f"pass an example for {parameter.name!r}: an array, a module, a jax.ShapeDtypeStruct or a"
        " static value.",
        code="J216",
    )


def _no_size(
    core: CompiledFunction,
    argument: str,
    path: str,
    hint: ArrayHint,
    missing: list[str],
) -> ContractError:
    names = [dim.name for dim in hint.dims if dim.name is not None]
    return ContractError(
        core.where,
        f"{path!r} is annotated {hint.text}, and {'; '.join(dict.fromkeys(missing))}.",
        "Ahead of time every axis needs a size.",
        (
            f"pass sizes={{{', '.join(f'{name!r}: ...' for name in names)}}}, or an example for"
            f" {argument!r}."
            if names
            else f"pass an example for {argument!r}."
        ),
        code="J216",
    )


def _size(
    dim: Dim,
    sizes: Mapping[str, int],
    given: Mapping[str, object],
) -> int | Unknown:
    if dim.kind == "fixed" and dim.size is not None:
        return dim.size
    if dim.kind == "symbolic" and dim.expr is not None:
        size = evaluate(dim.expr, sizes, given)
        if isinstance(size, Unknown):
            return size
        return int(size)
    if dim.variadic or dim.name is None:
        return Unknown(f"`{dim.text}` stands for any axes")
    return sizes.get(dim.name, Unknown(f"axis {dim.name!r} has no size"))


def _warn_unmapped_arrays(
    core: CompiledFunction,
    examples: Mapping[str, object],
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> None:
    """Warn where `vmap` maps more arrays than may be meant: a size of its axis maps every array
    that was left out, and a call that shares one of them is another program.
    """
    for axis in core.options.vmap:
        if axis.dims is not None or axis.name not in sizes:
            continue
        ranks = {
            parameter.name: parameter.hint.rank
            for parameter in core.contract.parameters
            if isinstance(parameter.hint, ArrayHint)
        }

        # Arrays with one axis more than their annotation; those without an example are guesses.
        mapped = [
            name
            for name, rank in ranks.items()
            if rank is not None and len(getattr(values.get(name), "shape", ())) == rank + 1
        ]
        guessed = [name for name in mapped if name not in examples]
        if len(mapped) < 2 or not guessed:
            continue

        shared = values[guessed[0]]
        example = f"{guessed[0]}=jax.ShapeDtypeStruct({shared.shape[1:]}, {str(shared.dtype)!r})"
        warnings.warn(
            format_error(
                core.where,
                f"axis {axis.name!r} was put into {shortlist([repr(name) for name in guessed])},"
                " left out of the examples.",
                "Every array of an argument that is left out is taken as mapped; a call that shares"
                " one is another program.",
                f"pass an example for what is shared ({example}), or say which are mapped: "
                f'vmap={{"{axis.name}": {{"{guessed[-1]}": 0}}}}.',
            ),
            AnnotationWarning,
            stacklevel=users_level(),
        )


def _insert_vmap_axes(
    core: CompiledFunction,
    path: str,
    shape: list[int],
    sizes: Mapping[str, int],
) -> tuple[int, ...]:
    """Add the axes of `vmap` that have a size, innermost first, where the array at this path has
    them.
    """
    for axis in reversed(core.options.vmap):
        if axis.name not in sizes:
            continue
        entries = axis.entries_at(path) if axis.dims is not None else [(path, 0)]
        at = entries[0][1] if entries else None
        if at is not None:
            if at < 0:
                at += len(shape) + 1
            shape.insert(at, sizes[axis.name])
    return tuple(shape)


# Instances of classes whose fields are abstract values.


_Make = Callable[[Hint, str], object]
"""Value of a field, by its annotation and its path; it raises where there is none."""


def has_fields(hint: Hint) -> bool:
    """Return whether the annotated fields of a class say what its instances hold: a NamedTuple, a
    TypedDict, or a dataclass that is a tree and makes its instances from its fields alone. A
    module of Equinox holds parameters, which have values before they have sizes.
    """
    if isinstance(hint, ContainerHint):
        return bool(hint.keys)
    if not isinstance(hint, ModuleHint) or issubclass(hint.cls, eqx.Module):
        return False
    if not dataclasses.is_dataclass(hint.cls):
        return False
    cls, fields = hint.cls, dataclasses.fields(hint.cls)
    parameters = vars(cls).get("__dataclass_params__")
    return (
        is_node(cls)
        and parameters is not None
        and parameters.init
        and not hasattr(cls, "__post_init__")
        and all(field.init and "converter" not in field.metadata for field in fields)
    )


def abstract_instance(hint: ContainerHint | ModuleHint, path: str, make: _Make) -> object:
    """Instance of a class that `has_fields`. A field with a default has its default."""
    if isinstance(hint, ContainerHint):
        kind: Callable[..., object] = hint.kind
        defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
        names = dict(zip(hint.keys, hint.items, strict=True))
        dot = "[{!r}]" if issubclass(hint.kind, dict) else ".{}"
        return kind(
            **{
                name: defaults[name] if name in defaults else make(inner, path + dot.format(name))
                for name, inner in names.items()
                if name not in hint.optional
            }
        )

    cls: Callable[..., object] = hint.cls
    hints = fields_of(hint.cls)
    values: dict[str, object] = {}
    for field in dataclasses.fields(hint.cls):
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if not has_default:
            values[field.name] = make(hints[field.name], f"{path}.{field.name}")
    return cls(**values)
