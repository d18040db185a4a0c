"""Check that the axes in `pad` and `chunk` exist: in the signature, in the fields of classes, or as
axes of `vmap`.

The annotations decide it at decoration where they are complete. An argument without annotation, or
an instance of a subclass, may have other axes; then the first call decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .._errors import name_fix
from .._signature.options import fail
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
