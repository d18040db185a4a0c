"""Programs that can be exported: what is refused, which options are left out, and whether its
programs are those of buckets.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..._errors import ExportError, Where
from ..._program.rows.lengths import LENGTHS
from ..._program.rows.row_kinds import may_be_rows
from ..._signature.options import OPTIONS, Options, is_measured
from ..container import missing_flatbuffers
from .export_sizes import ExportSizes, Program


def has_rows(
    program: Program,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> bool:
    """Return whether rows of unlike lengths are among the examples of a program."""
    bound_args, bound_kwargs = program.bound
    given = (*bound_args, *args, *bound_kwargs.values(), *kwargs.values())
    core = program.core
    if not core.may_have_rows or not (LENGTHS in kwargs or any(map(may_be_rows, given))):
        return False
    return core.rows_in((*bound_args, *args), {**bound_kwargs, **kwargs}) is not None


def pads_programs(
    options: Options,
    asked: Sequence[ExportSizes],
    vjp_order: object,
) -> bool:
    """Return whether programs are those of buckets: a range is a program of its own, chunks of an
    array with `vmap` are rows of equal lengths, and under two derivatives a call is not padded.
    """
    if options.chunk or options.memory is not None or any(at.ranges for at in asked):
        return False
    return vjp_order in (0, 1)


def checks_contract(program: Program, *, has_rows: bool) -> bool:
    """Return whether a loaded call is checked against the annotations. With `vmap` it is not, since
    the annotations describe the arguments of the body; those of rows do so too, one by one.
    """
    return program.options.contracts and (has_rows or not program.options.vmap)


def check_exportable(program: Program, where: Where, vjp_order: object) -> None:
    """Check that a program can be exported.

    Raises:
        ExportError: It cannot, or `vjp_order` is malformed.
    """
    options = program.options
    if importlib.util.find_spec("flatbuffers") is None:
        raise missing_flatbuffers(where)
    if not isinstance(vjp_order, int) or isinstance(vjp_order, bool) or vjp_order < 0:
        raise ExportError(
            where,
            f"vjp_order={vjp_order!r} is not a number of derivatives.",
            "It says how often a loaded program can be differentiated by `jax.grad`.",
            "write vjp_order=1, or export `f.value_and_grad`.",
        )
    refused = {
        "shard": options.shard is not None or options.mesh is not None,
        "debug_nans": options.debug_nans,
        "JITNEY_DISABLE": options.disabled is not None,
        'chunk="fast"': is_measured(options.chunk),
    }
    for name, is_there in refused.items():
        if is_there:
            raise ExportError(
                where,
                f"it has `{name}`, which cannot be exported.",
                "A file holds one program for one device, and no code that looks at its results.",
                f"export it without: jitney.optimize(...) of the same function, without `{name}`.",
            )


def without_left_options(
    program: Program,
    keeps: Sequence[str],
) -> tuple[Program, list[str]]:
    """Return the program without options that are not exported, and their names. It has counters of
    its own.

    Args:
        program: The program.
        keeps: Options that are exported all the same.
    """
    # Settings of the process are left behind as options are.
    options = program.options.settled()
    kept = {name: getattr(options, name) for name in keeps}
    changed = replace(options.in_file, **kept)
    left = [
        name
        for name, each in OPTIONS.items()
        if each.left and getattr(options, name) != getattr(changed, name)
    ]
    return program.with_body(program.body, changed), left


def bound_names(program: Program, where: Where) -> tuple[str, ...]:
    """Return the parameters that the program is bound to."""
    (args, kwargs), _ = program.flattened()
    if not args and not kwargs:
        return ()
    signature = program.core.binder.signature
    names = tuple(signature.bind_partial(*args, **kwargs).arguments)
    # kinds 2 and 4 are `*args` and `**kwargs`
    if any(signature.parameters[name].kind in (2, 4) for name in names):
        raise ExportError(
            where,
            "it is bound to some of its `*args` or `**kwargs`.",
            "What it is bound to goes into the file by parameter.",
            "export a function that names them.",
        )
    return names
