"""Contract of a function: its signature as data, and the comparison of a call with it.

It builds on `_signature/annotations.py` (hints), `sizes.py` (one shape) and `check.py` (one value).
Here all arguments are compared, and a mismatch becomes a `ContractError`.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._errors import AnnotationWarning, ContractError, Where, format_error
from .._owners import users_level
from .._signature.annotations import hints_of
from .._signature.hints import AnyHint, ArrayHint, Hint, ModuleHint, ScalarHint, UnionHint
from .check import BindingScope, Unresolved, fits_alone, mismatch_of
from .kinds import accepts, arrays_in, children_of, is_array, is_number
from .sizes import AxisBindings, Mismatch, settle


@dataclass(frozen=True)
class Parameter:
    """Parameter of a signature, with its hint."""

    name: str
    # A kind of `inspect.Parameter`.
    kind: int
    hint: Hint
    has_default: bool
    default: object = field(default=inspect.Parameter.empty, compare=False, repr=False)


@dataclass(frozen=True)
class Contract:
    """Signature of a function: the hints of its arguments and its result."""

    where: Where = field(compare=False)
    parameters: tuple[Parameter, ...]
    result: Hint
    unresolved: tuple[str, ...] = ()

    @property
    def axes(self) -> frozenset[str]:
        """Axes that the signature names, including those inside expressions such as `n+1`."""
        hints = (*(parameter.hint for parameter in self.parameters), self.result)
        return frozenset(
            name
            for hint in hints
            for array in arrays_in(hint)
            for name in (*array.names, *array.mentions)
        )


@dataclass(frozen=True)
class Match:
    """Array leaf together with the annotation that applies to it."""

    path: str
    argument: str
    hint: ArrayHint | ScalarHint
    value: Any = field(compare=False)


def contract_of(
    fn: Callable[..., object],
    signature: inspect.Signature,
    where: Where,
    namespace: Mapping[str, object] | None = None,
) -> Contract:
    """Read a function's annotations into a contract. `namespace` provides names that only the
    decorating frame knows.
    """
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


def check_arguments(
    contract: Contract, arguments: Mapping[str, object]
) -> tuple[AxisBindings, tuple[str, ...]]:
    """Compare arguments with a contract. Return the sizes that they bind, and notes on unchecked
    parts.

    Raises:
        ContractError: If an argument does not fit its annotation, or two disagree on an axis.
    """
    scope = BindingScope(AxisBindings(), arguments)
    sizes = scope.sizes

    for parameter in contract.parameters:
        for path, value in _pieces(parameter, arguments):
            before = sizes.copy()
            problem = mismatch_of(parameter.hint, value, path, scope)
            # Defaults are not checked, as in jaxtyping.
            if problem is not None and value is parameter.default:
                sizes.restore(before)
                sizes.notes.append(
                    f"{path!r}: its default does not fit {parameter.hint.text}, and is not checked"
                )
            else:
                _raise(contract.where, problem)

    # Expressions may refer to axes that a later argument binds, so they are evaluated last.
    _raise(contract.where, settle(sizes, arguments))
    _warn_unresolved_fields(contract, sizes.notes)
    return sizes, tuple(dict.fromkeys(sizes.notes))


def _first_name(note: str) -> str:
    """Argument that a note begins with, in quotes; "" if it begins otherwise."""
    found = re.match(r"'(\w+)", note)
    return "" if found is None else found[1]


def _warn_unresolved_fields(contract: Contract, notes: Sequence[str]) -> None:
    """Warn about fields whose annotations cannot be resolved. Parameters have their own warning."""
    unresolved = [note for note in notes if isinstance(note, Unresolved)]
    fields = [note for note in unresolved if _first_name(note) not in contract.unresolved]
    if fields:
        what = f"{'; '.join(dict.fromkeys(fields))}."
        text = format_error(contract.where, what, UNRESOLVED_RULE, UNRESOLVED_FIX)
        warnings.warn(text, AnnotationWarning, stacklevel=users_level())


UNRESOLVED_RULE = (
    "An annotation that is text is looked up where it stands. One that cannot be is not checked,"
    " and its axes are unknown."
)
UNRESOLVED_FIX = (
    "correct the name, or import it where it is found at run time: not under `if TYPE_CHECKING:`,"
    " not in a function."
)


def check_result(
    contract: Contract,
    result: object,
    sizes: AxisBindings,
    arguments: Mapping[str, object],
) -> None:
    """Compare a result with a contract, under the sizes that the arguments bound.

    Raises:
        ContractError: If the result does not fit.
    """
    scope = BindingScope(sizes.copy(), arguments)
    problem = mismatch_of(contract.result, result, "result", scope)
    _raise(contract.where, _of_result(problem))
    problem = settle(scope.sizes, arguments)
    _raise(contract.where, _of_result(problem))


def matches(
    hint: Hint,
    value: object,
    path: str,
    argument: str,
) -> Iterator[Match]:
    """Array leaves of a value, each with the annotation that applies to it. Nothing is compared."""
    for inner, leaf, where in _leaves(hint, value, path, strict=True):
        yield Match(where, argument, inner, leaf)


def all_matches(contract: Contract, arguments: Mapping[str, object]) -> Iterator[Match]:
    """Matches of every argument; `*args` and `**kwargs` count item by item."""
    for parameter in contract.parameters:
        for path, value in _pieces(parameter, arguments):
            yield from matches(parameter.hint, value, path, parameter.name)


def _leaves(
    hint: Hint,
    value: object,
    path: str,
    *,
    strict: bool,
) -> Iterator[tuple[ArrayHint | ScalarHint, object, str]]:
    match hint:
        case ArrayHint():
            if is_array(value) or (strict and hint.array_like and is_number(value)):
                yield hint, value, path
        case ScalarHint():
            if is_array(value) or (strict and is_number(value)):
                yield hint, value, path
        case UnionHint(options=options):
            # The alternative that fits completely, else the first of the right kind.
            alone = (option for option in options if fits_alone(option, value))
            loose = (option for option in options if accepts(option, value))
            chosen = next(alone, None) or next(loose, None)
            if chosen is not None:
                yield from _leaves(chosen, value, path, strict=strict)
        case _:
            for inner, child, where in children_of(hint, value, path):
                is_strict = strict and not isinstance(hint, ModuleHint)
                yield from _leaves(inner, child, where, strict=is_strict)


def _pieces(parameter: Parameter, arguments: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Values of a parameter with their paths; `*args` and `**kwargs` have several."""
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


def _of_result(problem: Mismatch | None) -> Mismatch | None:
    """The mismatch worded for a result, which is returned and not passed."""
    if problem is None:
        return None
    fix = problem.fix_of_result or re.sub("^pass ", "return ", problem.fix)
    return replace(problem, fix=fix, code="J217")


def _raise(where: Where, problem: Mismatch | None) -> None:
    if problem is not None:
        raise ContractError(where, problem.what, problem.rule, problem.fix, code=problem.code)
