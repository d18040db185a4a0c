"""`jitney.accumulate`: the gradient of a batch from microbatches, one at a time.

There is no engine of its own here: `chunk=` cuts the gradient's program. This file adds the
requirement that the loss is a sum along the axis, which `Derived(summed=True)` has proven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec

from .._errors import OptionError
from .._interface.derivatives.varying_arguments import argument_names, check_names
from .._interface.optimize import optimize
from .._interface.program import Program
from .._owners import public
from .._program.rows.row_kinds import may_have_rows
from .._signature.options import Wrt, fail
from .._stages.derivatives.derive import Derived

if TYPE_CHECKING:
    from .._program.core import CompiledFunction

P = ParamSpec("P")


@public
def accumulate(
    loss: Callable[P, object],
    /,
    *,
    axis: str,
    microbatch: int,
    wrt: Wrt = None,
    has_aux: bool = False,
) -> Program[P, tuple[Any, Any]]:
    """Value and gradient of a loss over a batch, accumulated over microbatches inside one program.

    Both equal those of the full batch up to rounding, while intermediates of the loss and of its
    backward pass that have the axis exist for one microbatch at a time. A shorter last microbatch
    is included. It also works under an outer trace, such as in a training step under `@optimize`.

    The loss has to be a mean or a sum along the axis, or a function of such sums (a weighted mean).
    This is proven on its program: every operation that reduces along the axis is a sum, and no such
    sum waits for another. A loss that is not a plain sum, such as a weighted mean, takes more than
    one pass over the data; the plan says how many.

    Args:
        loss: A function that returns one number, or a program of `@optimize`, whose options stay.
            Do not put the gradient into a step of its own first: the derivative of this function is
            what is accumulated.
        axis: The axis of its signature that is cut. Or that of `vmap`, if the loss has `pad`: it is
            then the loss of one row, rows may be of unlike lengths, and the value and the gradient
            are sums over rows, with respect to what they share.
        microbatch: Number of elements of the axis at a time; on each device, if the loss has
            `shard`.
        wrt: The arguments that the gradient is taken with respect to: one name for the gradient
            itself, several for a dict by name. Without it, all arguments that hold floating-point
            arrays. The gradient of an Equinox module is a module, with None for leaves that are not
            such arrays.
        has_aux: Whether the loss returns `(number, aux)`. The result is then `((number, aux),
            gradient)`; arrays of `aux` that have the axis come out whole.

    Returns:
        A `Program` of the loss's arguments that returns `(value, gradient)`.

    Raises:
        AxisError: When it is called: the loss is not a sum along the axis. The message names the
            line and its operation.
        OptionError: The axis or an argument does not exist, or an option of the loss contradicts
            it.
    """
    _check_loss(loss)
    program = loss if isinstance(loss, Program) else optimize(loss)
    core = program.core
    where = f"accumulate() of {core.where}"
    _check_values(where, microbatch, has_aux)
    by_rows = may_have_rows(core.options) and core.options.vmap[0].name == axis
    _check(
        where,
        core,
        axis,
        by_rows=by_rows,
        has_aux=has_aux,
    )
    if wrt is not None:
        names, single = argument_names(where, "wrt", wrt)
    else:
        names, single = program.defaults.wrt, program.defaults.single
    check_names(where, names or (), core)

    # `summed` asks for the proof that every reduction along the axis is a sum.
    derived = Derived(
        program.body,
        "value_and_grad",
        names,
        program.defaults.skip,
        single,
        remat=core.options.remat,
        aux=has_aux,
        summed=not by_rows,
        roll=core.options.roll,
    )
    options = core.options

    # Under `JITNEY_DISABLE` the options stay as they are: the plain derivative runs, of each row
    # where rows are summed.
    if options.disabled is not None:
        options = replace(options, accumulate=by_rows)
    else:
        options = replace(
            options,
            donate=(),
            remat=None,
            chunk=((axis, microbatch),),
            accumulate=True,
        )
    return program.with_body(derived, options)


def _check_loss(loss: object) -> None:
    if not callable(loss):
        fail(
            "accumulate()",
            f"{loss!r} is not a loss.",
            "A loss is a function of arrays, or a program of one.",
            "pass the function.",
            code="J204",
        )


def _check_values(where: str, microbatch: object, has_aux: object) -> None:
    if not isinstance(microbatch, int) or isinstance(microbatch, bool) or microbatch < 1:
        fail(
            where,
            f"microbatch={microbatch!r} is not a number of elements.",
            "It is an integer above 0.",
            "write microbatch=8.",
            code="J220",
        )
    if type(has_aux) is not bool:
        fail(
            where,
            f"has_aux={has_aux!r} is neither True nor False.",
            "It says whether the loss returns (number, aux).",
            "write one.",
            code="J220",
        )


def _check(
    where: str,
    core: CompiledFunction,
    axis: str,
    *,
    by_rows: bool,
    has_aux: bool,
) -> None:
    """Refuse an axis that the signature lacks, and options that also set the size of a piece."""
    # An argument without annotation may be of a class that names it; then the first call decides.
    known, is_open = core.declared_axes
    mapped = axis in [over.name for over in core.options.vmap]
    later = (is_open or core.contract.unresolved) and not mapped
    if by_rows and has_aux:
        raise OptionError(
            where,
            "has_aux=True does not go with rows of unlike lengths.",
            "The losses of all rows are summed, and nothing says what their `aux` are together.",
            "call the function itself for what else it returns.",
            code="J201",
        )
    if not by_rows and (not isinstance(axis, str) or (axis not in known and not later)):
        what = f"axis={axis!r} is not an axis."
        if mapped:
            what = (
                f"axis={axis!r} is that of `vmap`, along which each element has a loss of its own."
            )
        fail(
            where,
            what,
            f"The axes of its annotations are {', '.join(sorted(known)) or 'none'}.",
            'annotate the arrays of the batch (x: Float[Array, "batch n"]), and take the mean'
            " inside the loss.",
            code="J202",
        )
    for option, value, fix in (
        (
            "pad",
            core.options.pad and not by_rows,
            "leave it out: a last microbatch that is shorter needs no padding.",
        ),
        ("workers", core.options.workers, "leave it out: microbatches run one after the other."),
        ("chunk", core.options.chunk, "leave it out: `microbatch` is the chunk."),
        (
            "memory",
            core.options.memory,
            'leave it out, or use chunk={axis: "auto"} with `memory` and `value_and_grad` instead.',
        ),
    ):
        if value:
            raise OptionError(
                where,
                f"the loss has `{option}`, which contradicts `microbatch`.",
                "`microbatch` says how much is worked on at a time.",
                fix,
                code="J201",
            )
