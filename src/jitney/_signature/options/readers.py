"""Options of `@optimize`: validated once, at decoration, and frozen.

This module stands before everything that acts on an option, so that no later code has to check an
option again. The input is the keywords as written, the output an `Options`, or an OptionError that
says how to write them.

    {"vmap": "batch", "pad": {"n": "pow2"}, "donate": "state"}
    -> Options(donate=("state",), vmap=(VmapAxis("batch"),), pad=(("n", Bucket(ladder="pow2")),))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NoReturn

import jax

from .._errors import OptionError, Where, name_fix
from .._extent import AUTO as AUTO
from .._extent import parsed_bytes
from .._host.switches import OF_PROGRAMS, SETTINGS, Disabled, is_auto
from .._jax.mesh import Mesh
from .._jax.trees import is_whole
from .._jax.xla.compiler import CompilerOptions
from .._precision import FULL, LOW, Policy, tokens
from .buckets import Bucket
from .compiler_options import read_compiler
from .paths import Steps, root_of, stem_of, steps_of
from .policies import RematPolicy, read_policy
from .renamed import warn_renamed

PRECISIONS = ("bf16", "fp16", "bf16-all", "fp16-all", "f32", "f64", "tf32")
MEASURED = "fast"
"""Value of `chunk`: the size is measured, of an axis of `vmap`."""
PRODUCT_TYPES = ("bf16", "fp16", "f32")
DEFAULT = "default"
# Factories in `jax.checkpoint_policies` take arguments, so a name alone does not choose a policy.
MAX_VMAP_AXES = 8
MOST_WORKERS = 1024
Wrt = str | tuple[str, ...] | list[str] | None
"""Names of the arguments to differentiate with respect to."""
# Keywords of `jax.jit`, similar transforms and `equinox.filter_jit`, and their spelling in jitney.
_ELSEWHERE = {
    "static_argnames": 'static="name"',
    "static_argnums": 'static="name", by name instead of position',
    "donate_argnames": 'donate="name"',
    "donate_argnums": 'donate="name", by name instead of position',
    "in_axes": 'vmap="batch", or by argument: vmap={"batch": {"x": 0}}',
    "axis_name": 'vmap="batch"',
    "in_shardings": 'shard={"batch": "data"}, by named axis',
    "out_shardings": 'shard={"batch": "data"}, by named axis',
    "policy": 'remat="dots_saveable"',
    "compiler_options": "compiler={...}",
}
FSDP = "fsdp"
OPTIONAL = "optional"
"""Value of `mesh`: use the mesh of the context, if there is one."""
EVERY = "*"
"""Value in `shard`: all axes of the mesh, in their order."""
_NOT_CARRIED_OUT = "jitney accepts no option that it does not carry out."
_OWN = {"set by": "jitney"}


@dataclass(frozen=True)
class VmapAxis:
    """Axis to map over. `dims` holds (path, position) pairs, or None for the rank rule. A path is
    an argument or a part of one, whose position is None if it does not have the axis.
    """

    name: str
    dims: tuple[tuple[str, int | None], ...] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments that `dims` names, or of which it names parts."""
        return tuple(dict.fromkeys(root_of(path) for path, _ in self.dims or ()))

    def entries_at(self, path: str) -> list[tuple[str, int | None]]:
        """Entries of `dims` that an array at this path is a part of, the longest path first."""
        entries = [(steps_of(part) or (), part, at) for part, at in self.dims or ()]
        entries.sort(key=lambda entry: -len(entry[0]))
        return [(part, at) for steps, part, at in entries if stem_of(path, steps) is not None]


@dataclass(frozen=True)
class Sharding:
    """Mesh axes that each named axis is sharded over, and whether parameters are sharded regardless
    of the names of their axes (`fsdp`).
    """

    axes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fsdp: bool = False

    def drop_axes(self, taken: Set[str]) -> Sharding:
        """The same sharding, leaving out mesh axes that are taken already."""
        left = (
            (name, tuple(axis for axis in along if axis not in taken)) for name, along in self.axes
        )
        return replace(self, axes=tuple(left))

    def over(self, mesh_axes: Iterable[str]) -> Sharding:
        """The same sharding, with `"*"` replaced by the names of the mesh's axes."""
        every = tuple(mesh_axes)
        return replace(
            self,
            axes=tuple((name, every if along == (EVERY,) else along) for name, along in self.axes),
        )


@dataclass(frozen=True)
class CompileLimit:
    """Maximum number of programs that one function may compile, and the reaction beyond it: "warn",
    "raise" or "eager".
    """

    count: int
    past: str


@dataclass(frozen=True)
class Options:
    """Options of one decoration. Two equal functions share programs if their options are equal too.

    `compiler`, `debug_nans`, `auto` and `verify` are None where the choice is left to the settings
    of the process; `settled()` puts those in.

    Two fields are set by jitney instead of the user. They are here because they, too, determine
    which programs can be shared.
    """

    static: tuple[str, ...] = ()
    donate: tuple[str, ...] = ()
    vmap: tuple[VmapAxis, ...] = ()
    pad: tuple[tuple[str, Bucket], ...] = ()
    ragged: str = "list"
    chunk: tuple[tuple[str, int | str], ...] = ()
    memory: int | str | None = None
    remat: str | RematPolicy | None = None
    roll: str | None = None
    precision: str | tuple[tuple[str, str], ...] | None = None
    cache: bool | Literal["program"] = True
    contracts: bool = True
    runtime_checks: str = "now"
    on_trace_error: str = "raise"
    on_compile_error: str = "raise"
    on_memory_error: str = "raise"
    max_compiles: CompileLimit | None = None
    compiler: str | CompilerOptions | None = None
    debug_nans: bool | None = None
    shard: Sharding | None = None
    mesh: jax.sharding.Mesh | str | None = None
    verify: bool | None = None
    workers: int | str | None = None
    auto: bool | str | None = None
    progress: bool = False
    # Set by JITNEY_DISABLE.
    disabled: Disabled | None = field(default=None, metadata=_OWN)
    # Set by `jitney.accumulate`: the axis of `chunk` is summed over, which has to be proven, under
    # an outer trace too.
    accumulate: bool = field(default=False, metadata=_OWN)

    def settled(self) -> Options:
        """Return the options that a program has if it is compiled now, with the settings of the
        process in place of options that are not given. `verify` does not change a program, and
        stays open.
        """
        now = SETTINGS.now
        left_out = [name for name in OF_PROGRAMS if getattr(self, name) is None]
        return replace(self, **{name: getattr(now, name) for name in left_out})

    @property
    def check(self) -> bool:
        """`contracts`, by its name before version 0.3.0."""
        warn_renamed("Program.options", "check")
        return self.contracts

    @property
    def checks(self) -> str:
        """`runtime_checks`, by its name before version 0.3.0."""
        warn_renamed("Program.options", "checks")
        return self.runtime_checks


NAMES = tuple(f.name for f in fields(Options) if not f.metadata)
"""Names of the options of `@optimize`."""


@dataclass(frozen=True)
class _Contradiction:
    """Options that are valid one by one but not together.

    Args:
        found: Returns the offending part of the options, or a false value if there is none.
        what: First part of the message; `{}` is replaced by the result of `found`.
        rule: Second part.
        fix: Third part.
    """

    found: Callable[[Options], object]
    what: str
    rule: str
    fix: str


# The first match is reported, so the order matters.
_CONTRADICTIONS = (
    _Contradiction(
        lambda o: _listing({*o.static} & {*o.donate}),
        "{} cannot be static and donated.",
        "A static value has no device buffer to donate.",
        "name it in one of the two options.",
    ),
    _Contradiction(
        lambda o: o.pad and not o.contracts,
        "`pad` and contracts=False contradict each other.",
        "The sizes of padded axes are those that the contract binds, so it is checked.",
        "drop contracts=False.",
    ),
    _Contradiction(
        lambda o: o.ragged != "list" and not (o.pad and len(o.vmap) == 1),
        'ragged="padded" has no rows: it goes with `vmap` over one axis and `pad`.',
        "It says how results come back that are of unlike lengths in the rows of a call.",
        'write vmap="row", pad={"points": "pow2"} with it.',
    ),
    _Contradiction(
        lambda o: o.pad and o.chunk and not _cuts_rows(o),
        "`pad` and `chunk` together are not supported yet.",
        "Only the axis of `vmap` is cut while others are padded.",
        "keep one: `chunk` needs no padding for a last chunk that is shorter.",
    ),
    _Contradiction(
        lambda o: (
            o.memory is not None and any(chunk != AUTO for _, chunk in o.chunk) and dict(o.chunk)
        ),
        "`memory` chooses the size of chunks, and chunk={!r} says it already.",
        'It goes with chunk={axis: "auto"}, or alone.',
        'write chunk={"points": "auto"}, memory="2GiB".',
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.memory is None,
        'remat="auto" has no memory to keep to.',
        "It recomputes the least in the backward pass that brings a gradient below `memory`.",
        'write memory="2GiB" with it, or memory="auto" for what is free.',
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.chunk,
        'remat="auto" and `chunk` together are not supported yet.',
        "`memory` is kept by recomputing or by cutting, one of them.",
        "keep one; `jitney.accumulate` takes the batch of a loss in parts.",
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.shard is not None,
        'remat="auto" and `shard` together are not supported yet.',
        "What a gradient takes is measured on one device.",
        "keep one, or name a policy of `jax.checkpoint_policies`.",
    ),
    _Contradiction(
        lambda o: o.roll is not None and o.shard is not None,
        "`roll` and `shard` together are not supported yet.",
        "Whether a loop runs as fast as layers one behind the other was measured on one device.",
        "keep one, or write the layers as a `jax.lax.scan`.",
    ),
    _Contradiction(
        lambda o: o.roll is not None and o.on_trace_error == "eager",
        'roll="auto" and on_trace_error="eager" contradict each other.',
        "Layers are found in the traced program; a body that cannot be traced has none.",
        'drop on_trace_error="eager".',
    ),
    _Contradiction(
        lambda o: o.memory is not None and o.pad and not _cuts_rows(o),
        "`pad` and `memory` together are not supported yet.",
        _NOT_CARRIED_OUT,
        "keep one: what `memory` cuts needs no padding.",
    ),
    _Contradiction(
        lambda o: o.on_trace_error == "eager" and _of_products(o.precision),
        'precision={} and on_trace_error="eager" contradict each other.',
        "Products are cast in the traced program; a body that cannot be traced has none.",
        'drop on_trace_error="eager", or write precision="bf16-all", which casts arguments.',
    ),
    _Contradiction(
        lambda o: is_measured(o.chunk) and o.chunk[0][0] not in [a.name for a in o.vmap[:1]],
        'chunk="fast" is of an axis that is not the outermost of `vmap`.',
        "Widths are measured on a part of the elements, which `vmap` computes each alone.",
        'give a size, or "auto".',
    ),
    _Contradiction(
        lambda o: (
            is_measured(o.chunk)
            and _first_given(
                {
                    "donate": o.donate,
                    "shard": o.shard is not None,
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        'chunk="fast" and `{}` together are not supported yet.',
        "What is measured runs several times, on parts of the arguments.",
        "give a size, or leave out the other.",
    ),
    _Contradiction(
        lambda o: o.workers and not o.vmap,
        "`workers` is given, and `vmap` is not.",
        "Threads share an axis that `vmap` adds: each of its elements is computed alone.",
        'write vmap="batch" with it, on a function of one element.',
    ),
    _Contradiction(
        lambda o: (
            o.workers
            and next((name for name, _ in o.chunk if name not in {a.name for a in o.vmap}), None)
        ),
        "`workers` and a chunk of {!r}, which the signature has, together are not supported yet.",
        "Threads share the axis that `vmap` adds, and a sum over another one is not theirs.",
        "keep one; `shard` divides such an axis over the devices of one CPU.",
    ),
    _Contradiction(
        lambda o: o.workers and o.donate,
        "`workers` and `donate` contradict each other.",
        "Each thread gets a part of an array, and its result is a part of the whole.",
        "keep one: the whole result has a buffer of its own.",
    ),
    _Contradiction(
        lambda o: (
            o.workers
            and _first_given(
                {
                    "pad": o.pad,
                    "memory": o.memory is not None,
                    "shard": o.shard is not None,
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        "`workers` and `{}` together are not supported yet.",
        _NOT_CARRIED_OUT,
        "keep one of the two.",
    ),
    _Contradiction(
        lambda o: (
            falls_back(o)
            and _first_given(
                {
                    "pad": o.pad,
                    "shard": o.shard is not None,
                    "workers": o.workers,
                    'chunk="fast"': is_measured(o.chunk),
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        "`on_compile_error` or `on_memory_error` and `{}` together are not supported yet.",
        "A call is repeated where it is one program, on one device.",
        "keep one of the two.",
    ),
    _Contradiction(
        lambda o: o.progress and not o.chunk and o.memory is None,
        "progress=True has no chunks to count.",
        "A bar shows how many chunks of a call are done.",
        'write chunk={"points": 1024} with it; `jitney.scan_steps(progress=True)` shows the steps'
        " of a loop.",
    ),
    _Contradiction(
        lambda o: (
            o.progress
            and _first_given(
                {
                    'chunk="fast"': is_measured(o.chunk),
                    "chunk={axis: 1}": any(chunk == 1 for _, chunk in o.chunk),
                    'remat="auto"': o.remat == AUTO,
                    "pad": o.pad,
                    "shard": o.shard is not None,
                    "workers": o.workers,
                    "auto": o.auto,
                }
            )
        ),
        "`progress` and `{}` together are not supported yet.",
        "The bar moves by a callback in one loop over chunks, on one device.",
        "keep one of the two.",
    ),
    _Contradiction(
        lambda o: _listing({name for axis in o.vmap for name in axis.arguments} & {*o.static}),
        "{} cannot be static and mapped.",
        "A static value is one value for the whole program.",
        "name it in one of the two options.",
    ),
)


def falls_back(options: Options) -> bool:
    """Return whether a call that XLA cannot compile or run is repeated another way."""
    return (options.on_compile_error, options.on_memory_error) != ("raise", "raise")


def _cuts_rows(options: Options) -> bool:
    """Return whether what is cut is rows: elements of the one axis of `vmap`, which is not
    padded.
    """
    if len(options.vmap) != 1 or is_measured(options.chunk):
        return False
    rows = options.vmap[0].name
    is_padded = rows in [name for name, _ in options.pad]
    return not is_padded and all(name == rows for name, _ in options.chunk)


def read_options(where: Where | str, raw: Mapping[str, object]) -> Options:
    """Validate the keywords of `@optimize`.

    Raises:
        OptionError: An option is unknown, malformed, not built yet, or contradicts another.
    """
    for name in raw:
        _check_name(where, name)
    options = Options(
        static=_names(where, "static", raw.get("static")),
        donate=_names(where, "donate", raw.get("donate")),
        vmap=_vmap(where, raw.get("vmap")),
        pad=_pad(where, raw.get("pad")),
        ragged=_choice(
            where,
            "ragged",
            raw.get("ragged", "list"),
            ("list", "padded"),
        ),
        chunk=_chunk(where, raw.get("chunk")),
        memory=_memory(where, raw.get("memory")),
        remat=read_policy(where, raw.get("remat", False)),
        roll=_roll(where, raw.get("roll")),
        precision=_precision(where, raw.get("precision")),
        cache=_cache(where, raw.get("cache", True)),
        contracts=_flag(where, "contracts", raw.get("contracts", True)),
        runtime_checks=_choice(
            where,
            "runtime_checks",
            raw.get("runtime_checks", "now"),
            ("now", "later"),
        ),
        on_trace_error=_choice(
            where, "on_trace_error", raw.get("on_trace_error", "raise"), ("raise", "eager")
        ),
        on_compile_error=_choice(
            where, "on_compile_error", raw.get("on_compile_error", "raise"), ("raise", "eager")
        ),
        on_memory_error=_choice(
            where,
            "on_memory_error",
            raw.get("on_memory_error", "raise"),
            ("raise", "chunk", "eager"),
        ),
        max_compiles=_max_compiles(where, raw.get("max_compiles")),
        compiler=read_compiler(where, raw.get("compiler")),
        debug_nans=_setting(where, "debug_nans", raw),
        shard=read_shard(where, raw.get("shard")),
        mesh=_mesh(where, raw.get("mesh"), raw.get("shard")),
        verify=_setting(where, "verify", raw),
        workers=_workers(where, raw.get("workers")),
        auto=_auto(where, raw.get("auto")),
        progress=_flag(where, "progress", raw.get("progress", False)),
    )

    # Each option is valid by itself here.
    for contradiction in _CONTRADICTIONS:
        given = contradiction.found(options)
        if given:
            fail(
                where,
                contradiction.what.format(given),
                contradiction.rule,
                contradiction.fix,
                code="J201",
            )

    return options


def _check_name(where: Where | str, name: str) -> None:
    if name in _ELSEWHERE:
        fail(
            where,
            f"unknown option {name!r}.",
            "It is JAX's; jitney's go by the names of arguments and axes.",
            f"write {_ELSEWHERE[name]}.",
            code="J200",
        )
    if name not in NAMES:
        fail(
            where,
            f"unknown option {name!r}.",
            f"The options are {', '.join(NAMES)}.",
            name_fix(name, NAMES, "leave it out."),
            code="J200",
        )


def _of_products(precision: str | tuple[tuple[str, str], ...] | None) -> str:
    """A policy of products as the user wrote it; "" for any other policy."""
    if policy_of(precision) is None and tolerance_of(precision) is None:
        return ""
    return repr(dict(precision) if isinstance(precision, tuple) else precision)


def fail(
    where: Where | str,
    what: str,
    rule: str,
    fix: str,
    *,
    code: str | None = None,
) -> NoReturn:
    raise OptionError(where, what, rule, fix, code=code)


def is_measured(chunk: tuple[tuple[str, int | str], ...]) -> bool:
    """Return whether the size of a chunk is measured."""
    return any(size == MEASURED for _, size in chunk)


def _first_given(given: Mapping[str, object]) -> str | None:
    return next((name for name, is_given in given.items() if is_given), None)


def _listing(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _names(
    where: Where | str,
    option: str,
    value: object,
) -> tuple[str, ...]:
    if value is None:
        return ()
    names = None
    if isinstance(value, str):
        names = (value,)
    elif isinstance(value, (tuple, list)):
        names = tuple(value)
    if names is None or not all(isinstance(name, str) and name.isidentifier() for name in names):
        fail(
            where,
            f"{option}={value!r} does not name parameters.",
            f"`{option}` takes parameter names.",
            f'write {option}="x" or {option}=("x", "y").',
        )
    if len(set(names)) != len(names):
        fail(
            where,
            f"{option}={value!r} names a parameter twice.",
            "Each name stands once.",
            "drop the repetition.",
        )
    return names


def _vmap(where: Where | str, value: object) -> tuple[VmapAxis, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        axes = (VmapAxis(value),)
    elif isinstance(value, Mapping) and value:
        axes = tuple(_explicit(where, value, name, dims) for name, dims in value.items())
    else:
        axes = ()
    if not axes or len(axes) > MAX_VMAP_AXES or not all(_is_axis(axis.name) for axis in axes):
        fail(
            where,
            f"vmap={value!r} does not name an axis.",
            "`vmap` takes one axis name, or a dict from axis name to {argument: position},"
            " outermost axis first.",
            'write vmap="batch" or vmap={"batch": {"x": 0}}.',
        )
    return axes


def _explicit(
    where: Where | str,
    value: object,
    name: Any,
    dims: object,
) -> VmapAxis:
    if (
        not isinstance(dims, Mapping)
        or not all(isinstance(path, str) for path in dims)
        or not all(map(_is_position, dims.values()))
        # Without a position nothing would be mapped.
        or all(dim is None for dim in dims.values())
    ):
        fail(
            where,
            f"vmap={value!r} does not say which argument has axis {name!r} where.",
            "The dict form takes {axis: {argument: position}}.",
            f'write vmap={{"{name}": {{"x": 0}}}}.',
        )

    parts: dict[Steps, str] = {}
    for path in dims:
        steps = steps_of(path)
        if steps is None:
            fail(
                where,
                f"vmap={value!r} has {path!r}, which is not a path.",
                "A part of an argument is written as the body reaches it.",
                'write "model.layers[0].weight", or "params[\'layers\']" for an item of a dict.',
            )
        if steps in parts:
            fail(
                where,
                f"vmap={value!r} has {parts[steps]!r} and {path!r}, which are one part.",
                "A part has one position of an axis.",
                "keep one of them.",
            )
        parts[steps] = path
    return VmapAxis(name, tuple(dims.items()))


def _is_position(dim: object) -> bool:
    # A bool is an int to Python, but not a position.
    return dim is None or (isinstance(dim, int) and not isinstance(dim, bool))


def _pad(
    where: Where | str,
    value: object,
) -> tuple[tuple[str, Bucket], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not value or not all(map(_is_axis, value)):
        fail(
            where,
            f"pad={value!r} does not say which axis is padded to what.",
            "`pad` takes a dict from axis name to buckets.",
            'write pad={"points": "pow2"}.',
        )
    items = value.items()
    return tuple((name, _bucket(where, name, buckets)) for name, buckets in items)


def _bucket(where: Where | str, name: str, buckets: Any) -> Bucket:
    if isinstance(buckets, Bucket):
        return buckets
    try:
        return Bucket(ladder=buckets) if isinstance(buckets, str) else Bucket(buckets)
    except OptionError as error:
        # Quote the first line of the error without its "jitney.Bucket(): ".
        what = str(error).partition("\n")[0].partition("(): ")[2].rstrip(".")
        fail(
            where,
            f"pad={{{name!r}: {buckets!r}}}: {what}.",
            'The buckets of an axis are "pow2", "aligned", "auto", a list of sizes, or a'
            " jitney.Bucket.",
            "choose one of these.",
        )


def _chunk(
    where: Where | str,
    value: object,
) -> tuple[tuple[str, int | str], ...]:
    if value is None:
        return ()
    if (
        not isinstance(value, Mapping)
        or len(value) == 0
        or not all(map(_is_axis, value))
        or not all(map(_is_chunk_size, value.values()))
    ):
        fail(
            where,
            f"chunk={value!r} does not say which axis is cut into chunks of what size.",
            '`chunk` takes a dict from axis name to a size above 0, "auto" or "fast".',
            'write chunk={"points": 65536}.',
        )
    if len(value) > 1:
        fail(
            where,
            f"chunk={value!r} cuts several axes.",
            "One axis is cut at a time.",
            "keep the longest.",
        )
    return tuple(value.items())


def _is_chunk_size(value: object) -> bool:
    if isinstance(value, str):
        return value in (AUTO, MEASURED)
    # A bool is an int to Python, but not a size.
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _memory(where: Where | str, value: object) -> int | str | None:
    if value is None:
        return None
    size = parsed_bytes(value)
    if size is None:
        fail(
            where,
            f"memory={value!r} is not a size.",
            '`memory` takes a number of bytes, a text with a unit, or "auto".',
            'write memory="2GiB".',
        )
    return size


def _max_compiles(where: Where | str, value: Any) -> CompileLimit | None:
    if value is None:
        return None
    if is_whole(value) and value > 0:
        return CompileLimit(int(value), _PAST[0])
    match = None
    if isinstance(value, str):
        match = re.fullmatch(rf"({'|'.join(_PAST)}):([1-9]\d*)", value)
    if match is None:
        fail(
            where,
            f"max_compiles={value!r} is not a limit.",
            "It is a number above 0, and what happens past it, which is a warning.",
            'write max_compiles=3, "raise:3" or "eager:3".',
        )
    return CompileLimit(int(match[2]), match[1])


_PAST = ("warn", "raise", "eager")


def _is_axis(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _workers(where: Where | str, value: object) -> int | str | None:
    if value is None:
        return None
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_WORKERS:
        fail(
            where,
            f"workers={value!r} is not a number of threads.",
            f'It is a number from 1 to {MOST_WORKERS}, or "auto" for as many as there are cores to'
            " be had.",
            'write workers=2 or workers="auto".',
        )
    return value


def _auto(where: Where | str, value: object) -> bool | str | None:
    if value is None or (isinstance(value, (bool, str)) and is_auto(value)):
        return value
    fail(
        where,
        f"auto={value!r} is not a choice.",
        '`auto` is True, False, or "exact" for widths whose results are equal to the bit.',
        "write auto=True.",
    )


def _roll(where: Where | str, value: object) -> str | None:
    if value is None or value is False:
        return None
    if not isinstance(value, str) or value != AUTO:
        fail(
            where,
            f"roll={value!r} does not say what is rolled.",
            '`roll` is "auto": equal layers become a loop where that is proven to be the same and'
            " worth it.",
            'write roll="auto".',
        )
    return AUTO


def _precision(
    where: Where | str,
    value: object,
) -> str | tuple[tuple[str, str], ...] | None:
    if value is None or (isinstance(value, str) and value in PRECISIONS):
        return value
    if isinstance(value, Mapping) and value:
        for name, type_ in value.items():
            if not isinstance(name, str) or not tokens(name) or type_ not in PRODUCT_TYPES:
                fail(
                    where,
                    f"precision={{{name!r}: {type_!r}}} does not say which products are computed in"
                    " what.",
                    'The dict form takes module paths (or source lines, "net.py:12"), and of each'
                    f" {', '.join(PRODUCT_TYPES)}.",
                    'write precision={"default": "bf16", "head": "f32"}.',
                )
        return tuple(value.items())
    if isinstance(value, str) and tolerance_of(value) is not None:
        return value
    fail(
        where,
        f"precision={value!r} is not a policy.",
        f"`precision` is one of {', '.join(PRECISIONS)}, "
        f'"auto:" with a tolerance such as 1e-2, or a dict of {", ".join(PRODUCT_TYPES)} by module'
        " path.",
        "choose one.",
    )


def tolerance_of(precision: str | tuple[tuple[str, str], ...] | None) -> float | None:
    """Tolerance of `"auto:1e-2"`; None for any other policy."""
    if not isinstance(precision, str):
        return None
    match = re.fullmatch(r"auto:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)", precision)
    tolerance = 0.0 if match is None else float(match[1])
    return tolerance if tolerance > 0 else None


def policy_of(precision: str | tuple[tuple[str, str], ...] | None) -> Policy | None:
    """Policy that casts products; None for a policy that casts arguments."""
    if isinstance(precision, tuple):
        types = dict(precision)
        usual = types.pop(DEFAULT, FULL)
        return Policy(usual, tuple(types.items()))
    return Policy(str(precision)) if precision in LOW else None


def _cache(where: Where | str, value: object) -> bool | Literal["program"]:
    if isinstance(value, str) and value == "program":
        return "program"
    if not isinstance(value, bool):
        fail(
            where,
            f"cache={value!r} is not a choice.",
            '`cache` is True, False or "program".',
            "write cache=True.",
        )
    return value


def read_shard(where: Where | str, value: object) -> Sharding | None:
    """Parse the option `shard`.

    Raises:
        OptionError: It is malformed.
    """
    if value is None:
        return None

    # Three forms: "fsdp", a dict of axes, and ("fsdp", dict).
    named = value
    fsdp = False
    if isinstance(value, str) and value == FSDP:
        named, fsdp = dict[str, str](), True
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        fsdp = isinstance(value[0], str) and value[0] == FSDP
        named = value[1] if fsdp else value
    if not isinstance(named, Mapping) or not (named or fsdp) or not all(map(_is_axis, named)):
        _not_sharding(where, value)
    axes: list[tuple[str, tuple[str, ...]]] = []

    for name, along in named.items():
        parts = (along,) if isinstance(along, str) else along
        # `"*"` stands alone: it cannot be combined with named axes of the mesh.
        named_all = isinstance(parts, (tuple, list)) and [*parts] == [EVERY]
        if not named_all and (
            not isinstance(parts, (tuple, list)) or not parts or not all(map(_is_axis, parts))
        ):
            _not_sharding(where, value)
        axes.append((name, tuple(parts)))

    return Sharding(tuple(axes), fsdp)


def _not_sharding(where: Where | str, value: object) -> NoReturn:
    fail(
        where,
        f"shard={value!r} does not say which axis is sharded over which axis of the mesh.",
        '`shard` takes a dict from named axis to axis of the mesh (or several, or "*" for all),'
        ' "fsdp", or both: ("fsdp", {...}).',
        'write shard={"batch": "data"}.',
    )


def _mesh(
    where: Where | str,
    value: object,
    shard: object,
) -> jax.sharding.Mesh | str | None:
    if value is None:
        return None
    # jitney's own `Mesh` wraps one of JAX's.
    if isinstance(value, Mesh):
        mesh: jax.sharding.Mesh | str = value.mesh
    elif isinstance(value, jax.sharding.Mesh):
        mesh = value
    elif isinstance(value, str) and value == OPTIONAL:
        mesh = OPTIONAL
    else:
        fail(
            where,
            f"mesh={value!r} is not a mesh.",
            '`mesh` takes what jitney.mesh(...) or jax.make_mesh gives, or "optional".',
            "write mesh=jitney.mesh(data=4).",
        )
    if shard is None:
        fail(
            where,
            "`mesh` is given, and `shard` is not.",
            "The mesh is where `shard` places axes.",
            'say which: shard={"batch": "data"}.',
            code="J201",
        )

    return mesh


def _flag(where: Where | str, option: str, value: object) -> bool:
    if not isinstance(value, bool):
        fail(
            where,
            f"{option}={value!r} is neither True nor False.",
            f"`{option}` is a flag.",
            f"write {option}=True.",
        )
    return value


def _setting(where: Where | str, option: str, raw: Mapping[str, object]) -> bool | None:
    """Parse a flag that overrides a setting of the process; None leaves the choice to it."""
    return None if raw.get(option) is None else _flag(where, option, raw[option])


def _choice(
    where: Where | str,
    option: str,
    value: object,
    choices: tuple[str, ...],
) -> str:
    if not isinstance(value, str) or value not in choices:
        fail(
            where,
            f"{option}={value!r} is not a choice.",
            f"`{option}` is one of {', '.join(choices)}.",
            "choose one.",
        )
    return value
