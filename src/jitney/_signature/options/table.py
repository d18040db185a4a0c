"""The options of `@optimize`: all that is particular to each, in one file.

An option is a key of `OptionKeywords`, which is what an author may write and what editors show, and
a field of `Options`, which has all that follows from it. `python -m tests.option_texts` brings it
into `help()` and the documentation.

No later code has to check an option again: `read.py` makes an `Options` of the keywords as written,
or an OptionError that says how to write them.

    {"vmap": "batch", "pad": {"n": "pow2"}, "donate": "state"}
    -> Options(donate=("state",), vmap=(VmapAxis("batch"),), pad=(("n", Bucket(ladder="pow2")),))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, TypedDict

import jax

from ..._extent import AUTO
from ..._host.switches import OF_PROGRAMS, SETTINGS, Disabled
from ..._jax.mesh import Mesh
from ..._jax.xla.compiler import CompilerOptions, options_of
from ..buckets import Bucket
from ..compiler_options import read_compiler
from ..policies import RematPolicy, read_policy
from ..renamed import warn_renamed
from . import plan_lines, program_changes, writers
from .option import (
    KEY,
    MEANING,
    ROUNDED,
    SUMS_ROUNDED,
    Change,
    Decision,
    OptionSpec,
    is_given,
    is_value,
    option,
)
from .readers import (
    choice,
    read_auto,
    read_cache,
    read_chunk,
    read_flag,
    read_max_compiles,
    read_memory,
    read_mesh,
    read_names,
    read_pad,
    read_precision,
    read_roll,
    read_setting,
    read_shard,
    read_vmap,
    read_workers,
)
from .spellings import Buckets, Compiler, Names, Precision, Shard
from .values import CompileLimit, Sharding, VmapAxis


class OptionKeywords(TypedDict, total=False):
    """Options as an author writes them."""

    static: Names | None
    """Arguments that are static as a whole; unhashable ones are keyed by value."""
    donate: Names | None
    """Arguments whose buffers the call may overwrite."""
    vmap: str | Mapping[str, Mapping[str, int | None]] | None
    """An axis that the signature does not name: arrays with one axis more than their annotation are
    mapped over the leading one. A dict, {axis: {argument: position}}, states the mapped arguments
    explicitly, outermost axis first, and parts of them by their paths: {axis: {"model.head": 0}}.
    None is the position of a part that is shared.
    """
    pad: Mapping[str, Buckets] | None
    """Axis name -> buckets (`"pow2"`, `"aligned"`, `"auto"`, a list of sizes, a `jitney.Bucket`).
    Sizes share the program of their bucket; results are those of the exact size. A function for
    which that cannot be proven runs at exact size, with one warning. With `vmap`, rows of unlike
    lengths are mapped: a list of arrays, or padded arrays with the keyword `lengths={axis:
    lengths}` of the call.
    """
    ragged: Literal["list", "padded"]
    """The form of a result that has a padded axis, where rows of unlike lengths are mapped: a
    `"list"` of arrays, or `"padded"`, a `jitney.types.PaddedRows`: one array, in which zeros stand
    behind each row, and the lengths.
    """
    chunk: Mapping[str, int | Literal["auto", "fast"]] | None
    """Axis name -> the number of its elements that are processed at a time, or `"auto"`. Sums are
    accumulated over the chunks, in as many passes as the body needs; an operation that cannot be
    cut raises an `AxisError` that names the line. `"fast"` measures, at the first call of a size,
    how many elements of the axis of `vmap` are quickest.
    """
    memory: int | str | None
    """Limit on the bytes of temporaries and arguments, as the compiler counts them: a number, a
    text such as `"2GiB"`, or `"auto"` for the free memory. A program that exceeds it is cut into
    chunks, along the axis of `chunk` or the longest that can be cut.
    """
    remat: bool | str | Callable[..., object] | None
    """Recompute intermediate values in the backward pass: True, the name of a policy in
    `jax.checkpoint_policies`, or what a factory there returns. `"auto"` recomputes the least that
    brings a gradient of this function below `memory`; if nothing does, a `BudgetError` states the
    least possible.
    """
    roll: Literal["auto", False] | None
    """`"auto"` compiles one of several identical layers in sequence, and runs it in a loop, where
    that is proven to give the same, compiles much faster and runs as fast; `plan` reports it. See
    `jitney.stack` for their weights.
    """
    precision: Precision | None
    """`"bf16"` and `"fp16"` compute matrix products and convolutions in the low dtype, accumulated
    in float32, and everything else unchanged; a dict sets it by module path, and `"auto:1e-2"`
    chooses by the error on the first call's arguments. `"bf16-all"`, `"fp16-all"`, `"f32"` and
    `"f64"` compute everything in that dtype; arguments and results keep theirs. `"tf32"` sets the
    precision of matrix products.
    """
    cache: bool | Literal["program"]
    """Store compiled programs in the persistent compilation cache. `"program"` also stores the
    traced and lowered program, so that another process does neither, where both would certainly
    give the same; `plan` says why if it is not stored. New: see the page "Caching".
    """
    contracts: bool
    """Check calls against the annotations, once for each new call key."""
    runtime_checks: Literal["now", "later"]
    """When a failed run-time check of Equinox (`eqx.error_if`) raises its error: in the call, which
    waits for it, or (`"later"`) in a later call of this thread that finds it, in `jitney.wait()`,
    or at the end of Python.
    """
    on_trace_error: Literal["raise", "eager"]
    """Reaction to a body that needs a concrete value: an error, or the same function un-jitted."""
    on_compile_error: Literal["raise", "eager"]
    """Reaction to a program that XLA cannot compile: its error, or the same function un-jitted from
    then on, with a warning.
    """
    on_memory_error: Literal["raise", "chunk", "eager"]
    """Reaction to a call that runs out of memory: its error, or the call once more in smaller
    chunks, or un-jitted, with a warning. Calls then wait for their results, as some devices report
    it only there.
    """
    max_compiles: int | str | None
    """The number of programs that this function may compile, including those from the persistent
    cache. Past it a warning has the cause of each; `"raise:3"` makes it a `CompileError`,
    `"eager:3"` runs new kinds of calls un-jitted.
    """
    compiler: Compiler | None
    """`"fast"` asks XLA for short compile times at the cost of run time; a dict has XLA's own
    options, `{"xla_backend_optimization_level": 1}`. None for the setting of
    `jitney.configure(compiler=...)` or `JITNEY_COMPILER`.
    """
    debug_nans: bool | None
    """Name the first operation that produces a NaN or an infinity in a result. None for the setting
    of `jitney.configure(debug_nans=...)` or `JITNEY_DEBUG_NANS`.
    """
    shard: Shard | None
    """Named axis -> the mesh axis (or several, or `"*"` for all) that it is sharded over, for
    arguments, results and fields of modules; `"fsdp"` to shard each parameter along its largest
    axis that divides; or both: `("fsdp", {"batch": "data"})`.
    """
    mesh: Mesh | jax.sharding.Mesh | Literal["optional"] | None
    """The devices, from `jitney.mesh` or `jax.make_mesh`. Without it the mesh of the context is
    used, and must exist; `"optional"` lets a call without one run as if there were no `shard`.
    """
    verify: bool | None
    """Run each new program as plain `jax.jit` too, and compare. None for the setting of
    `jitney.configure(verify=...)` or `JITNEY_VERIFY`.
    """
    workers: int | Literal["auto"] | None
    """The number of threads that share the axis of `vmap` on a CPU, of several the outermost, or
    `"auto"` for as many as there are cores to be had. Each runs the compiled program on its part;
    the call waits for all of them.
    """
    auto: bool | Literal["exact"] | None
    """Choose by measuring how many elements of the axis of `vmap` run at a time, and on a CPU in
    how many threads. It tries nothing before calls have taken as long as their compile did, and
    remembers its choice beside the persistent cache. `"exact"` takes only what gave results equal
    to the bit. None for the setting of `jitney.configure(auto=...)` or `JITNEY_AUTO`.
    """
    progress: bool
    """Show by a bar how many chunks of a call are done, and the time left. It is drawn by
    callbacks, a hundred of them at most.
    """


@dataclass(frozen=True)
class Options:
    """Options of one decoration. Two equal functions share programs if their options are equal too.

    `compiler`, `debug_nans`, `auto` and `verify` are None where the choice is left to the settings
    of the process; `settled()` puts those in.

    Two fields are set by jitney instead of the user. They are here because they, too, determine
    which programs can be shared.
    """

    static: tuple[str, ...] = option(
        default=(),
        read_as=read_names,
        write=writers.write_names,
        use="values that are compiled into the program",
    )
    donate: tuple[str, ...] = option(
        default=(),
        read_as=read_names,
        write=writers.write_names,
        script=writers.not_in_scripts,
        left="the caller keeps the buffers of arguments",
        plain=(),
        nested=bool,
        use="results take over the buffers of arguments",
    )
    vmap: tuple[VmapAxis, ...] = option(
        default=(),
        read=read_vmap,
        write=writers.write_vmap,
        use="an axis that the signature does not name",
        numbers="those of `jax.vmap`, to the bit",
    )
    pad: tuple[tuple[str, Bucket], ...] = option(
        default=(),
        read=read_pad,
        write=writers.write_pad,
        script=writers.script_pad,
        left="sizes are those that were exported",
        plain=(),
        nested=bool,
        tolerance=SUMS_ROUNDED,
        changes=program_changes.padding,
        use="sizes share the programs of their bucket",
    )
    ragged: str = option(
        default="list",
        read_as=choice("list", "padded"),
        script=writers.not_in_scripts,
        use="results of rows of unlike lengths: lists, or padded arrays",
    )
    chunk: tuple[tuple[str, int | str], ...] = option(
        default=(),
        read=read_chunk,
        write=dict,
        plain=(),
        nested=bool,
        tolerance=ROUNDED,
        changes=program_changes.cutting,
        use="a long axis, so many elements at a time",
    )
    memory: int | str | None = option(
        default=None,
        read=read_memory,
        plain=None,
        tolerance=ROUNDED,
        changes=program_changes.fitting,
        use="as many elements at a time as fit, as the compiler counts",
        numbers="up to rounding, where it cuts",
    )
    remat: str | RematPolicy | None = option(
        default=None,
        read=read_policy,
        script=writers.script_remat,
        plain=None,
        nested=is_value(AUTO),
        tolerance=ROUNDED,
        changes=program_changes.rematerialising,
        use="a backward pass that recomputes instead of keeping",
        numbers="gradients up to rounding",
    )
    roll: str | None = option(
        default=None,
        read=read_roll,
        plain=None,
        nested=is_value(AUTO),
        tolerance=ROUNDED,
        changes=program_changes.rolling,
        use="equal layers, compiled once",
        numbers="up to rounding, where it rolls",
    )
    # The tolerances of `precision` are those of its types.
    precision: str | tuple[tuple[str, str], ...] | None = option(
        default=None,
        read=read_precision,
        write=writers.write_precision,
        plain=None,
        changes=program_changes.casting,
        use="in which type it computes",
        numbers="casts: those of the type that is asked for",
    )
    cache: bool | Literal["program"] = option(
        default=True,
        read=read_cache,
        script=writers.not_in_scripts,
        left="what is compiled is kept as JAX's settings say",
        nested=is_value("program"),
        use="what other processes find compiled, or traced",
    )
    contracts: bool = option(
        default=True,
        read_as=read_flag,
        plain=False,
        says=plan_lines.of_contracts,
        use="calls without their contract",
        numbers="the same to the bit, if the call fits",
    )
    runtime_checks: str = option(
        default="now",
        read_as=choice("now", "later"),
        script=writers.not_in_scripts,
        left="a loaded program waits for what its run-time checks find",
        plain="now",
        nested=is_value("later"),
        use="when run-time checks raise: now, or later",
    )
    on_trace_error: str = option(
        default="raise",
        read_as=choice("raise", "eager"),
        script=writers.not_in_scripts,
        left="",
        says=plan_lines.of_trace_errors,
        use="a body that needs values: an error, or run un-jitted",
        numbers="those of JAX without `jit`, where un-jitted",
    )
    on_compile_error: str = option(
        default="raise",
        read_as=choice("raise", "eager"),
        script=writers.not_in_scripts,
        left="",
        plain="raise",
        use="a program that XLA cannot compile: its error, or un-jitted",
        numbers="those of JAX without `jit`, where un-jitted",
    )
    on_memory_error: str = option(
        default="raise",
        read_as=choice("raise", "chunk", "eager"),
        script=writers.not_in_scripts,
        left="",
        plain="raise",
        use="a call that runs out of memory: the error, or once more in chunks, or un-jitted",
        numbers="up to rounding, where it was run again",
    )
    max_compiles: CompileLimit | None = option(
        default=None,
        read=read_max_compiles,
        write=writers.write_limit,
        script=writers.not_in_scripts,
        left="nothing is traced after it is loaded",
        use="how many programs are too many",
        numbers="the same to the bit; with `eager`, as above",
    )
    compiler: str | CompilerOptions | None = option(
        default=None,
        read=read_compiler,
        script=writers.script_compiler,
        left="compiled with XLA's usual options",
        plain="default",
        nested=options_of,
        tolerance=ROUNDED,
        changes=program_changes.compiling,
        use="short compile times and slower programs, or XLA's own options",
    )
    debug_nans: bool | None = option(
        default=None,
        read_as=read_setting,
        script=writers.not_in_scripts,
        left="nothing looks at the results of a loaded program",
        plain=False,
        nested=bool,
        says=plan_lines.of_debug_nans,
        use="which operation made a NaN or an infinity",
    )
    shard: Sharding | None = option(
        default=None,
        read=read_shard,
        write=writers.write_shard,
        plain=None,
        nested=is_given,
        tolerance=ROUNDED,
        changes=program_changes.sharding,
        use="named axes along the axes of a mesh of devices",
    )
    mesh: jax.sharding.Mesh | str | None = option(
        default=None,
        read=read_mesh,
        script=writers.script_mesh,
        plain=None,
    )
    verify: bool | None = option(
        default=None,
        read_as=read_setting,
        script=writers.not_in_scripts,
        left="",
        plain=False,
        use="each new program beside plain `jax.jit`",
    )
    workers: int | str | None = option(
        default=None,
        read=read_workers,
        left="the whole program is exported, and runs in one call",
        plain=None,
        nested=is_given,
        tolerance=ROUNDED,
        changes=program_changes.sharing,
        use="a mapped axis over the cores of a CPU, in threads",
    )
    auto: bool | str | None = option(
        default=None,
        read=read_auto,
        script=writers.not_in_scripts,
        left="the whole program is exported, and runs in one call",
        plain=False,
        nested=bool,
        use="widths and threads of a mapped axis, chosen by measuring",
        numbers='up to rounding; with `"exact"` the same to the bit where it was tried',
    )
    progress: bool = option(
        default=False,
        read_as=read_flag,
        script=writers.not_in_scripts,
        left="nothing is drawn while a loaded program runs",
        plain=False,
        use="a bar of the chunks of a call that are done",
    )
    # Set by JITNEY_DISABLE.
    disabled: Disabled | None = option(default=None)
    # Set by `jitney.accumulate`: the axis of `chunk` is summed over, which has to be proven, under
    # an outer trace too.
    accumulate: bool = option(default=False, plain=False)

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

    @property
    def changes(self) -> list[Change]:
        """Changes that the options may make to a program, in the order of the options."""
        return [change for each in OPTIONS.values() for change in each.changes(self)]

    @property
    def decisions(self) -> list[Decision]:
        """Lines of a plan that follow from the options alone, in the order of the options."""
        return [line for each in OPTIONS.values() for line in each.says(self)]

    @property
    def plain(self) -> Options:
        """The options without those that may change the computation."""
        return replace(self, **_PLAIN)

    def without(self, *names: str) -> Options:
        """Return the options with these set to the value with which they do nothing."""
        return replace(self, **{name: OPTIONS[name].off for name in names})

    @property
    def in_file(self) -> Options:
        """The options that a file of `f.export` carries out: it can hold neither an eager fallback
        nor a second program to verify against.
        """
        return self.without(*(name for name, each in OPTIONS.items() if each.left is not None))

    @property
    def depends_on_nesting(self) -> bool:
        """True if some option means something else under an outer transform: such calls have an
        entry of their own.
        """
        # Without an axis of `vmap` there is nothing that `auto` decides.
        decided = {} if self.vmap else {"auto"}
        return any(
            bool(each.nested(getattr(self, name)))
            for name, each in OPTIONS.items()
            if name not in decided
        )


OPTIONS: Mapping[str, OptionSpec] = {each.name: each.metadata[KEY] for each in fields(Options)}
"""Name of a field -> the option."""
NAMES = tuple(name for name, each in OPTIONS.items() if each.read is not None)
"""Names of the options of `@optimize`."""
ON_ERROR = tuple(name for name in OPTIONS if name.startswith("on_"))
"""Names of the options that choose what follows an error."""
_PLAIN = {name: each.plain for name, each in OPTIONS.items() if each.plain is not MEANING}
