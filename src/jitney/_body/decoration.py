"""Check that the options name what exists: parameters, a new axis for `vmap`, and for `pad` and
`chunk` axes of the signature, of the fields of classes, or of `vmap`.

The annotations decide it at decoration where they are complete. An argument without annotation, or
an instance of a subclass, may have other axes; then the first call decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .._contract.contract import UNRESOLVED_FIX, UNRESOLVED_RULE
from .._errors import format_error, name_fix, shortlist
from .._signature.annotations import missing_in
from .._signature.hints import AnyHint, StaticHint
from .._signature.options import fail
from .._stages.derivatives.derive import Derived
from .._view.field_axes import axes_of_instances

if TYPE_CHECKING:
    from .function import FunctionInfo


def demand_known_axes(core: FunctionInfo) -> None:
    """Check the options of a function at decoration.

    Raises:
        OptionError: No annotation has an axis, and no argument can have it.
    """
    known, is_open = core.declared_axes
    if not core.contract.unresolved and not is_open:
        _demand(core, known)


def demand_axes_of_call(core: FunctionInfo, values: Callable[[], Iterable[object]]) -> None:
    """Check the options of a function by the arguments of a call.

    Args:
        core: The function.
        values: Returns the arguments, which are looked at only if the annotations leave an axis
            open.

    Raises:
        OptionError: No annotation has an axis, and no argument has it.
    """
    if not (core.options.pad or core.options.chunk) or core.contract.unresolved:
        return
    known, is_open = core.declared_axes
    if is_open and any(name not in known for _, name in _named(core)):
        _demand(core, known.union(*map(axes_of_instances, values())))


def _demand(core: FunctionInfo, axes: Iterable[str]) -> None:
    known = {*axes, *(axis.name for axis in core.options.vmap)}
    for option, name in _named(core):
        if name not in known:
            fail(
                core.where,
                f"`{option}` names {name!r}, which is not an axis.",
                "The axes of the signature, of the fields of its classes and of `vmap` are"
                f" {', '.join(sorted(known)) or 'none'}.",
                (
                    name_fix(name, known)
                    if known
                    else f'annotate the arrays that have it: x: Float[Array, "{name}"].'
                ),
                code="J202",
            )


def _named(core: FunctionInfo) -> list[tuple[str, str]]:
    """Pairs of an option and an axis that it names."""
    named = [("pad", name) for name, _ in core.options.pad]
    cuts = "accumulate" if core.options.accumulate else "chunk"
    return [*named, *((cuts, name) for name, _ in core.options.chunk)]


def resolution_warning(core: FunctionInfo, namespace: Mapping[str, object] | None) -> str:
    """Return the warning about annotations that cannot be used."""
    fn = core.fn()
    missing = missing_in(fn.fn if isinstance(fn, Derived) else fn, namespace)
    of = {each.of: "the result" if each.of == "return" else repr(each.of) for each in missing}
    parts = [f"the annotation `{each.text}` of {of[each.of]} ({each.error})" for each in missing]
    near = [f"did you mean `{each.near}`?" for each in missing if each.near]
    options = [name for name in ("pad", "chunk", "vmap") if getattr(core.options, name)]
    without = f" Here `{'` and `'.join(options)}` may do less than was asked." if options else ""
    return format_error(
        core.where,
        f"{shortlist(parts)} cannot be resolved.",
        UNRESOLVED_RULE + without,
        " ".join([*dict.fromkeys(near), UNRESOLVED_FIX]),
    )


def check_names(core: FunctionInfo) -> None:
    """Check that the options name parameters that exist, and a new axis for `vmap`: both are known
    at decoration.
    """
    parameters = {parameter.name for parameter in core.binder.parameters}
    # `**kwargs` may take any name.
    open_ended = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in core.binder.parameters
    )
    mapped = tuple(name for axis in core.options.vmap for name in axis.arguments)
    for option, names in (
        ("static", core.options.static),
        ("donate", core.options.donate),
        ("vmap", mapped),
    ):
        for name in names:
            if name not in parameters and not open_ended:
                fail(
                    core.where,
                    f"`{option}` names {name!r}, which is not a parameter.",
                    f"The parameters are {', '.join(sorted(parameters)) or 'none'}.",
                    name_fix(name, parameters),
                    code="J202",
                )

    demand_known_axes(core)

    # `vmap` adds an axis that the signature must not have.
    for axis in core.options.vmap:
        if axis.name in core.axes:
            owner = "the signature has"
            if axis.name not in core.contract.axes:
                owner = "the fields of its classes have"
            fail(
                core.where,
                f"vmap={axis.name!r} names an axis that {owner} already.",
                "An annotation says what the body sees; `vmap` adds an axis that it does not name.",
                f"drop {axis.name!r} from the annotations of a function of one element, or choose"
                " another name.",
                code="J203",
            )
    levels = core.options.vmap
    if len(levels) == 1 and levels[0].dims is None:
        _check_rank_rule(core)


def _check_rank_rule(core: FunctionInfo) -> None:
    """Check that an annotation has a rank, which the rank rule of `vmap` needs."""
    if core.contract.unresolved or any(
        not isinstance(p.hint, (AnyHint, StaticHint)) for p in core.contract.parameters
    ):
        return
    axis = core.options.vmap[0].name
    fail(
        core.where,
        f"vmap={axis!r} has no annotation to go by.",
        "An array is mapped if it has one axis more than its annotation.",
        f'annotate the arrays (x: Float[Array, "n"]), or say it outright: vmap={{"{axis}": {{"x":'
        " 0}}.",
        code="J203",
    )
