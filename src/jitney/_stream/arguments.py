"""Arguments of a stream: those of a call, in which sources may stand for arrays.

    f.stream("x.npy", t, chunk={"n": 4096})     binds as f(x, t) does

The keywords of `stream` are its own, and all others are the function's. A function with a parameter
of such a name takes it by position, or is bound to it by a `functools.partial`; where a keyword
could be either, the call is refused. The other design, two containers `args=` and `kwargs=`, never
collides, but then no stream reads as the call that it stands for.

A source stands for an array: it is opened where the annotation is an array, also as an item of an
annotated container or a field of an annotated class, or where `vmap` names a parameter without
annotation. Any other value is what it is in a call, since a text may be a static argument and a
list of arrays a pytree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._contract.kinds import accepts, children_of, flatten_to, suggest
from .._diagnosis.tracer_errors import no_number
from .._errors import ContractError, OptionError, Where
from .._former import warn_former
from .._interface.derivatives.derivative import Derivative, program_of
from .._jax.trees import (
    canonicalize_dtype,
    is_node,
    keystr,
    tree_flatten_with_path,
    tree_unflatten,
)
from .._signature.binding import Default
from .._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    TreeHint,
    UnionHint,
)
from .._view.field_axes import axes_in_fields
from .data.reading import SourceOpener
from .data.sources import abstract, is_read, is_sliceable, read_whole

if TYPE_CHECKING:
    from .._interface.program import AnyProgram
    from .._program.core import CompiledFunction

Given = tuple[tuple[object, ...], dict[str, object]]
"""Arguments of a call: by position, and by name."""
_Act = Callable[[Hint, object, str], object]
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def bind_call(
    function: object,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    own: Mapping[str, object],
) -> tuple[AnyProgram, tuple[object, ...]]:
    """Bind the arguments of a stream as those of a call.

    Args:
        function: A program, or a derivative of one.
        args: Its arguments by position.
        kwargs: Its arguments by name; for a derivative also `wrt` and its directions.
        own: Keywords of `stream` -> their values, None where they are left out.

    Returns:
        The program, not bound to anything, and one value for each of its parameters.

    Raises:
        OptionError: The function is not a program, or a keyword of the stream is also a parameter.
        ContractError: The arguments do not fit the parameters.
    """
    named = dict(kwargs)
    data = args[0] if len(args) == 1 and not kwargs else None
    # The program without `wrt`, which the form of one dict means, is made for that form alone.
    if isinstance(function, Derivative) and not isinstance(data, Mapping):
        program = function.of_call(named)
    else:
        program = program_of("jitney.stream()", function)
        by_names = _data_by_names(program, data) if isinstance(data, Mapping) else None
        if by_names is not None:
            _warn_by_names(program, list(by_names))
            args, named = (), by_names
        elif isinstance(function, Derivative):
            program = function.of_call(named)

    _refuse_ambiguous(program, args, own)
    _refuse_misspelt(program, named, own)
    bound_args, bound_kwargs = program.bound
    values = program.core.binder.bind((*bound_args, *args), {**bound_kwargs, **named})
    return program.bound_to((), {}), values


@dataclass(frozen=True)
class StreamArguments:
    """Arguments of a stream with their sources open.

    Args:
        core: The function.
        values: One for each of its parameters.
        sources: The sources, and other values where one could stand, by the paths of messages.
        failures: Number of failed attempts to open one.
    """

    core: CompiledFunction
    values: tuple[object, ...]
    sources: Mapping[str, object]
    failures: int

    @classmethod
    def opened(
        cls,
        core: CompiledFunction,
        values: tuple[object, ...],
        retries: int,
    ) -> StreamArguments:
        """Open the sources among the arguments.

        Raises:
            ContractError: A value is not a source.
            OSError: A source cannot be opened, or its rows cannot be counted.
        """
        with core.lock:
            # Names that the annotations use may have been defined since the decoration.
            if core.contract.unresolved:
                core.resolve()

        opener = SourceOpener(str(core.where), retries)
        sources: dict[str, object] = {}
        mapped = {
            path
            for axis in core.options.vmap
            for path, position in axis.dims or ()
            if position is not None
        }

        def act(hint: Hint, value: object, path: str) -> object:
            is_source = (
                isinstance(hint, ArrayHint)
                or isinstance(value, np.ndarray)
                or (path in mapped and _is_file(value))
            )
            opened = sources[path] = opener(path, value) if is_source else value
            if is_source:
                _demand_numbers(core.where, opened, path)
                _demand_dtype(core.where, hint, opened, path)
            return opened

        opened = _mapped(core, values, act)
        return cls(core, opened, sources, opener.failures)

    def abstract(self) -> Given:
        """Arguments of a call in which abstract values stand for the sources."""
        return self._given(lambda hint, value, path: abstract(value))

    def whole(self) -> Given:
        """Arguments of a call, with all rows of the sources."""
        return self._given(lambda hint, value, path: read_whole(value, path))

    def _given(self, act: _Act) -> Given:
        return self.core.binder.call(
            lambda *args, **kwargs: (args, kwargs), _mapped(self.core, self.values, act)
        )


def _mapped(
    core: CompiledFunction,
    values: tuple[object, ...],
    act: _Act,
) -> tuple[object, ...]:
    """Arguments in normal form with each value changed where a source may stand."""
    hints = {parameter.name: parameter.hint for parameter in core.contract.parameters}
    static = core.options.static
    changed: list[object] = []
    for parameter, value in zip(core.binder.parameters, values, strict=True):
        name, hint = parameter.name, hints[parameter.name]
        new: object = value
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts: Any = value
            new = tuple(_at(hint, part, f"{name}[{i}]", act) for i, part in enumerate(parts))
        elif parameter.kind is parameter.VAR_KEYWORD:
            items: Any = value
            new = {
                key: item if key in static else _at(hint, item, key, act)
                for key, item in items.items()
            }
        elif name not in static and value is not Default.OWN:
            new = _at(hint, value, name, act)
        changed.append(new)
    return tuple(changed)


def _at(
    hint: Hint,
    value: Any,
    path: str,
    act: _Act,
) -> object:
    """Change a value where its annotation is an array, or the items of a container of such."""
    if isinstance(hint, UnionHint):
        hint = _alternative(hint, value)
    if isinstance(hint, (ArrayHint, AnyHint)):
        return act(hint, value, path)
    if isinstance(hint, TreeHint):
        leaves, treedef = flatten_to(hint.leaf, value)
        named = ((path + jax.tree_util.keystr(at), leaf) for at, leaf in leaves)
        new = [_at(hint.leaf, leaf, name, act) for name, leaf in named]
        return jax.tree.unflatten(treedef, new)

    # An instance of a class is read field by field.
    if isinstance(hint, ModuleHint) and is_node(type(value)):
        leaves, treedef = tree_flatten_with_path(value)
        fields = zip(leaves, axes_in_fields(value), strict=True)
        return tree_unflatten(
            treedef,
            [
                act(inside.for_options, leaf, path + keystr(at))
                if inside is not None and isinstance(inside.for_options, ArrayHint)
                else leaf
                for (at, leaf), inside in fields
            ],
        )

    children = list(children_of(hint, value, path)) if isinstance(hint, ContainerHint) else []
    # Items that the annotation does not name are refused by the call.
    if not children or len(children) != len(value):
        return value
    items = [_at(*child, act) for child in children]
    if isinstance(value, Mapping):
        return dict(zip(value, items, strict=True))
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _alternative(hint: UnionHint, value: object) -> Hint:
    """Alternative of a union that the value has; that of an array if it has none."""
    arrays = [option for option in hint.options if isinstance(option, ArrayHint)]
    fitting = [option for option in hint.options if accepts(option, value)]
    return next(iter([*fitting, *arrays, *hint.options]))


def _demand_numbers(where: Where, source: object, path: str) -> None:
    """Check that JAX computes with what is read, as a call checks it of an array.

    Raises:
        ContractError: It is text, or in the byte order of other machines, or there is only a shape.
    """
    if is_read(source) and isinstance(source.dtype, np.dtype):
        source = np.empty(0, source.dtype)
    if isinstance(source, (np.ndarray, jax.ShapeDtypeStruct)):
        unfit = no_number(where, [source], [path])
        if unfit is not None:
            raise unfit


def _demand_dtype(where: Where, hint: Hint, source: object, path: str) -> None:
    """Check that an annotation allows the dtype of what is read.

    The body sees what JAX makes of it, int32 of int64; a message names the dtype of the file.

    Raises:
        ContractError: It does not.
    """
    if not isinstance(hint, ArrayHint) or not is_read(source):
        return
    held, seen = source.dtype, canonicalize_dtype(source.dtype)
    if held != seen and not hint.allows(held) and not hint.allows(seen):
        raise ContractError(
            where,
            f"{path!r} has dtype {held}, and {hint.text} allows {hint.dtypes_text}.",
            "An annotation says which dtypes the body sees; nothing is cast in silence.",
            f"annotate `{suggest(held)}[Array, ...]`, or write the data in another dtype.",
            code="J212",
        )


def _is_file(value: object) -> bool:
    """Return whether a value that `vmap` maps, without annotation, is a file of an array, or a list
    with such.
    """
    if isinstance(value, (str, Path)):
        return Path(value).suffix in (".npy", ".npz")
    if isinstance(value, (list, tuple)):
        return any(isinstance(part, (str, Path)) for part in value) and all(
            is_sliceable(part) or _is_file(part) for part in value
        )
    return False


# Keywords of the stream that are parameters, too.


def _refuse_ambiguous(
    program: AnyProgram,
    args: tuple[object, ...],
    own: Mapping[str, object],
) -> None:
    """Check that no keyword of the stream may as well be an argument of the function."""
    bound_args, bound_kwargs = program.bound
    free = program.core.binder.parameters[len(bound_args) :]
    by_position = [parameter.name for parameter in free if parameter.kind in _BY_POSITION]
    for parameter in free:
        name = parameter.name
        if own.get(name) is None or name in bound_kwargs or name in by_position[: len(args)]:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            what = f"jitney.optimize(functools.partial({program.core.name}, {name}=...))"
            fix = f"bind it first, with {what}, and stream that."
        else:
            before = by_position[: by_position.index(name) + 1]
            fix = f"write {program.core.name}.stream({', '.join(before)}, ...)."
        raise OptionError(
            program.core.where,
            f"{name}= is a keyword of `stream`, and a parameter of the function.",
            "A keyword of `stream` is the stream's; a parameter of the same name is passed by"
            " position.",
            fix,
            code="J220",
        )


def _refuse_misspelt(
    program: AnyProgram,
    named: Mapping[str, object],
    own: Mapping[str, object],
) -> None:
    """Check that no keyword is nearest to one of the stream's. The function itself refuses others
    that it does not know.
    """
    parameters = program.core.binder.signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    free = [name for name in (*parameters, *own) if name not in named]
    for name in named:
        near = [] if name in parameters else get_close_matches(name, free, n=1)
        if near and near[0] in own:
            raise ContractError(
                program.core.where,
                f"got an unexpected keyword argument {name!r}.",
                f"Its parameters are {', '.join(parameters) or 'none'}, and the keywords of"
                f" `stream` are {', '.join(own)}.",
                f"did you mean the keyword {near[0]!r} of `stream`?",
                code="J215",
            )


# The form of versions before 0.3.0, one dict by names. To be removed in 0.5.0.


def _data_by_names(
    program: AnyProgram,
    given: Mapping[object, object],
) -> dict[str, object] | None:
    """Return the one argument, as data by name, if it maps the names of parameters to their values.

    Where the annotation of the first parameter takes a mapping, it is data. Without an annotation
    it is data unless it names that parameter.
    """
    data = {name: value for name, value in given.items() if isinstance(name, str)}
    bound_args, bound_kwargs = program.bound
    free = [
        parameter.name
        for parameter in program.core.binder.parameters[len(bound_args) :]
        if parameter.name not in bound_kwargs
    ]
    if not free or len(data) < len(given):
        return None
    hints = {parameter.name: parameter.hint for parameter in program.core.contract.parameters}
    first = hints[free[0]]
    if isinstance(first, AnyHint):
        return data if free[0] in data else None
    is_named = not _takes_mapping(first, given) and not data.keys().isdisjoint(free)
    return data if is_named else None


def _takes_mapping(hint: Hint, data: object) -> bool:
    """Return whether an annotation takes a mapping, whatever its items are: a path may stand for an
    array.
    """
    match hint:
        case AnyHint() | TreeHint():
            return True
        case ContainerHint(kind=kind):
            return isinstance(data, kind)
        case UnionHint(options=options):
            return any(_takes_mapping(option, data) for option in options)
        case _:
            return accepts(hint, data)


def _warn_by_names(program: AnyProgram, names: Sequence[str]) -> None:
    what = "the arguments are given as one dict by their names."
    rule = "A stream takes its arguments as a call does."
    named = ", ".join(f"{name}=..." for name in names)
    fix = f"write {program.core.name}.stream({named}), or pass them by position."
    warn_former(program.core.where, what, rule, fix)
