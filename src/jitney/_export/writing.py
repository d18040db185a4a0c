"""Writer of a program into a file: one lowered program for each set of sizes, the trees of its
arguments and results, its contract and its plans.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import jax
import numpy as np

from .._diagnosis.needed_values import CAUGHT
from .._diagnosis.tracer_errors import trace_error
from .._errors import ContractError, ExportError, Where
from .._jax.settings import settings, x64_is_on
from .._jax.stand_ins import unflatten_stand_ins
from .._jax.trees import extended, issubdtype, words_of_keys
from .._jax.typed import Array, Aval
from .._program.entry import Specialization
from .._report.plan_report import report
from .._signature.hints import ArrayHint, ScalarHint
from .._signature.options import Options, is_measured
from .._switches import OF_PROGRAMS, Settings
from .._version import __version__
from .._view.layout import is_nested_trace, jit_is_off
from .._view.view import LeafHint
from .container import path_of, write
from .contract_data import contract_data
from .export_sizes import (
    ExportSizes,
    Program,
    arrays_at,
    missing_sizes,
    resizing,
    size_combinations,
)
from .header import ArrayEntry, BoundEntry, ProgramEntry
from .lowering import ExportLowered, ExportTrace, lower_program, trace_for
from .lowering import trace_program as traced_at
from .trees import Slot, StaticLeaf, Tree, Unportable, tree_to_data

_LEFT = {
    "donate": "the caller keeps the buffers of arguments",
    "pad": "sizes are those that were exported",
    "cache": "what is compiled is kept as JAX's settings say",
    "debug_nans": "nothing looks at the results of a loaded program",
    "compiler": "compiled with XLA's usual options",
    "max_compiles": "nothing is traced after it is loaded",
    "workers": "the whole program is exported, and runs in one call",
    "auto": "the whole program is exported, and runs in one call",
    "runtime_checks": "a loaded program waits for what its run-time checks find",
}
"""Options that determine how calls run, not what they return. They are dropped, and the plan lists
them.
"""

_NO_SETTINGS: dict[str, object] = {name: getattr(Settings(), name) for name in OF_PROGRAMS}
_OF_THE_PROCESS = ("cache", "max_compiles", "trace errors", "verify", "debug_nans", "settings")
"""Lines of a plan that do not describe the program: caches on this machine, and what happens on
errors.
"""


def export(
    program: Program,
    file: str | Path,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    sizes: Mapping[str, object] | None,
    vjp_order: int,
    platforms: Sequence[str] | None,
) -> None:
    """Export a program to a file; implements `Program.export`."""
    where = replace(program.core.where, name=f"{program.core.where.name}.export")
    path = path_of(file, where)
    _check(program, where, vjp_order)

    # Reset these options before anything is traced, so that the program does not depend on them.
    program, left = _without_ways(program)
    writer = _Writer(program, where, _bound_names(program, where), vjp_order, platforms)

    # Arguments and bound arrays are the same in all parts, so those of the first are written.
    parts = [writer.part(args, kwargs, at) for at in size_combinations(sizes, where)]
    first = parts[0]
    members = {f"array {i}": content for i, (_, content) in enumerate(first.bound)}
    members |= {f"program {i}": part.content for i, part in enumerate(parts)}
    header = {
        "jitney": __version__,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "name": program.core.name,
        "doc": getattr(program, "__doc__", None),
        "checks_contract": _checks(program),
        "contract": contract_data(program.core.contract, writer.bound),
        "f64": program.options.precision == "f64",
        "arguments": first.arguments,
        "bound": [data for data, _ in first.bound],
        "programs": [part.told for part in parts],
        "vjp_order": vjp_order,
        "left": [[name, _LEFT[name]] for name in left],
        "settings": [[name, str(value)] for name, value in settings()],
    }
    write(path, header, members, where)


@dataclass(frozen=True)
class _Part:
    """A lowered program with the data that a file has for it.

    Args:
        told: Its entry in the header.
        arguments: Trees of its arguments, by name.
        bound: Arrays that it is bound to: the header entry and the bytes of each.
        content: JAX's serialised bytes.
    """

    told: ProgramEntry
    arguments: dict[str, Tree]
    bound: list[tuple[BoundEntry, bytes]]
    content: bytes


@dataclass(frozen=True)
class _Writer:
    """Builder of the parts of one file."""

    program: Program
    where: Where
    bound: tuple[str, ...]
    vjp_order: int
    platforms: Sequence[str] | None

    def part(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        at: ExportSizes,
    ) -> _Part:
        """Build the part for one set of sizes."""
        entry, examples = self.program.abstract(
            args,
            dict(kwargs),
            missing_sizes(self.program, at, args, kwargs, self.where),
            warn=False,
        )
        if is_nested_trace(examples) or jit_is_off():
            raise ExportError(
                self.where,
                "it is called while something is traced, or `jit` is off.",
                "What is exported is a whole program.",
                "export it outside of `jit`, `grad`, `vmap` and `jax.disable_jit()`.",
            )
        try:
            with entry.numbers():
                return self._lower_part(entry, examples, at)
        except CAUGHT as error:
            explained = trace_error(error, self.program.core.where, entry.paths, examples)
            if explained is None:
                raise
            raise explained from error

    def _lower_part(
        self,
        entry: Specialization,
        examples: Sequence[Array | jax.ShapeDtypeStruct],
        at: ExportSizes,
    ) -> _Part:
        resized = resizing(entry, examples, at, self.where)
        arrays = arrays_at(resized, examples, at.representative(), self.where)
        if at.ranges:
            trace = trace_for(entry, lambda sizes: resized({**at.exact, **sizes}), at.ranges)
        else:
            trace = traced_at(entry, arrays)
        program = lower_program(trace, self.program.core.where, self.platforms)
        return _Part(
            _program_entry(self.program, entry, arrays, at, trace, program, self.where),
            _arguments(entry, arrays, self.bound, self.where),
            _bound_arrays(entry, examples, arrays, self.bound, self.where),
            _serialize_program(program, self.vjp_order, self.where),
        )


def _serialize_program(known: ExportLowered, vjp_order: int, where: Where) -> bytes:
    """Serialise a program with its derivatives, which JAX computes here.

    Raises:
        ExportError: It cannot be differentiated or serialised.
    """
    try:
        return bytes(known.exported.serialize(vjp_order=vjp_order))
    except (ValueError, NotImplementedError) as error:
        raise ExportError(
            where,
            f"JAX cannot write it: {str(error).strip().splitlines()[0]}",
            f"With vjp_order={vjp_order} a file holds what `jax.grad` of the loaded function is.",
            "export it without vjp_order, or change what cannot be differentiated.",
        ) from error


def _checks(program: Program) -> bool:
    """Return whether a loaded call is checked against the annotations. With `vmap` it is not, since
    the annotations describe the arguments of the body.
    """
    return program.options.contracts and not program.options.vmap


def _check(program: Program, where: Where, vjp_order: object) -> None:
    options = program.options
    if importlib.util.find_spec("flatbuffers") is None:
        raise ExportError(
            where,
            "the package flatbuffers is not there.",
            "JAX writes and reads exported programs with it.",
            'install it: pip install "jitney[export]".',
            code="J291",
        )
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


def _without_ways(program: Program) -> tuple[Program, list[str]]:
    """Return the program without options that are not exported, and their names. It has counters of
    its own.
    """
    # Settings of the process are left behind as options are.
    options, usual = program.options.settled(), replace(Options(), **_NO_SETTINGS)
    left = [name for name in _LEFT if getattr(options, name) != getattr(usual, name)]

    # A file can hold neither an eager fallback nor a second program to verify against.
    changed = replace(
        options,
        on_trace_error="raise",
        verify=False,
        **{name: getattr(usual, name) for name in left},
    )
    return program.with_body(program.body, changed), left


def _bound_names(program: Program, where: Where) -> tuple[str, ...]:
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


def _arguments(
    entry: Specialization,
    arrays: Sequence[Array],
    bound: Sequence[str],
    where: Where,
) -> dict[str, Tree]:
    """Return the trees of the arguments that are not bound, by name."""
    layout = entry.layout
    view = layout.view(entry.core.contract, arrays, entry.statics)

    # Rebuild the argument structure with slots for arrays and held values for static leaves.
    leaves: list[Slot | StaticLeaf | None] = [None] * (len(layout.dynamic) + len(layout.static))
    arrays_of = zip(layout.dynamic, view.leaves, strict=True)
    for number, (i, leaf) in enumerate(arrays_of):
        leaves[i] = Slot(number, _scalar(leaf.hint, is_number=i in layout.numbers))
    for i, value in zip(layout.static, entry.statics, strict=True):
        leaves[i] = StaticLeaf(value)

    names = [parameter.name for parameter in entry.core.contract.parameters]
    arguments = unflatten_stand_ins(layout.treedef, leaves)
    trees = zip(names, arguments, strict=True)
    return {name: _portable_data(tree, name, where) for name, tree in trees if name not in bound}


def _scalar(hint: LeafHint, *, is_number: bool) -> str | None:
    if isinstance(hint, ScalarHint):
        return hint.kind
    if not is_number:
        return None
    converts = isinstance(hint, ArrayHint) and not hint.allows(np.dtype(np.int32))
    return "float" if converts else "number"


def _portable_data(tree: object, path: str, where: Where) -> Tree:
    try:
        return tree_to_data(tree, path)
    except Unportable as part:
        raise ExportError(
            where,
            f"{part.path!r} is or holds {part.what}, which a file cannot hold.",
            "It holds arrays, plain values, what has a name, and tuples, lists, dicts, named tuples"
            " and Equinox modules of these.",
            "pass and return such, or define a function or a class at the top of its module.",
        ) from part


def _program_entry(
    program: Program,
    entry: Specialization,
    arrays: Sequence[Array],
    at: ExportSizes,
    made: ExportTrace,
    known: ExportLowered,
    where: Where,
) -> ProgramEntry:
    """Return the header entry of one program."""
    view = entry.layout.view(entry.core.contract, arrays, entry.statics)
    whole = report(program.core, entry, arrays, compiles=False)
    lines = [line for line in whole.lines if line.name not in _OF_THE_PROCESS]
    plan = replace(whole, lines=tuple(lines))

    ranges = {name: [sizes[0], sizes[-1]] for name, sizes in at.ranges.items()}
    # The names of JAX's symbolic dimensions, in the order of the ranges.
    symbols = {f"d{i}": [name, *ends] for i, (name, ends) in enumerate(ranges.items())}
    return {
        "sizes": {**at.exact, **ranges},
        "symbols": symbols,
        "arrays": [
            _aval(aval, leaf.path)
            for aval, leaf in zip(made.closed.in_avals, view.leaves, strict=True)
        ],
        "results": [_aval(aval, "") for aval in made.closed.out_avals],
        "result": _portable_data(made.result, "result", where),
        "checks": [list(messages) for messages in known.checks],
        "platforms": list(known.exported.platforms),
        "calling_convention": known.exported.calling_convention_version,
        "x64": x64_is_on(),
        "plan": plan.to_dict(),
        "plan_text": str(plan),
    }


def _aval(aval: Aval, path: str) -> ArrayEntry:
    shape = [int(size) if isinstance(size, (int, np.integer)) else str(size) for size in aval.shape]
    return {
        "path": path,
        "shape": shape,
        "dtype": str(aval.dtype),
        "weak": bool(aval.weak_type),
    }


def _bound_arrays(
    entry: Specialization,
    examples: Sequence[Array | jax.ShapeDtypeStruct],
    arrays: Sequence[Array],
    bound: Sequence[str],
    where: Where,
) -> list[tuple[BoundEntry, bytes]]:
    """Return the arrays that the program is bound to, which the file holds by value."""
    entries: list[tuple[BoundEntry, bytes]] = []
    pairs = zip(entry.layout.dynamic, examples, arrays, strict=True)
    for number, (i, array, taken) in enumerate(pairs):
        argument, path = entry.layout.names[i]
        if argument not in bound:
            continue
        # `arrays_at` returns the example itself only if its shape is unchanged.
        if taken is not array:
            raise ContractError(
                where,
                f"{path!r}, to which it is bound, has another size than was asked for.",
                "What a program is bound to goes into the file as it is.",
                "leave that axis out of `sizes`.",
                code="J216",
            )
        if isinstance(array, jax.ShapeDtypeStruct):
            raise ExportError(
                where,
                f"{path!r}, to which it is bound, has no values.",
                "What a program is bound to goes into the file.",
                "bind it to arrays, or export the function and pass them when it is loaded.",
            )
        is_key = isinstance(array, jax.Array) and issubdtype(array.dtype, extended)
        # with the dtype that JAX gives it
        host = words_of_keys(array) if is_key else np.asarray(jax.numpy.asarray(array))
        impl = str(jax.random.key_impl(array)) if is_key else None
        data: BoundEntry = {
            "number": number,
            "dtype": host.dtype.name,
            "shape": list(host.shape),
            "impl": impl,
        }
        entries.append((data, host.tobytes()))
    return entries
