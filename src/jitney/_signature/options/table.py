"""The options of `@optimize`: a field of `Options` for each, with all that is particular to it.

No later code has to check an option again: `read.py` makes an `Options` of the keywords as written,
or an OptionError that says how to write them.

    {"vmap": "batch", "pad": {"n": "pow2"}, "donate": "state"}
    -> Options(donate=("state",), vmap=(VmapAxis("batch"),), pad=(("n", Bucket(ladder="pow2")),))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

import jax

from ..._extent import AUTO
from ..._host.switches import OF_PROGRAMS, SETTINGS, Disabled
from ..._jax.xla.compiler import CompilerOptions, options_of
from ..buckets import Bucket
from ..compiler_options import read_compiler
from ..policies import RematPolicy, read_policy
from ..renamed import warn_renamed
from .option import KEY, MEANING, Change, OptionSpec, is_given, option
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
from .values import CompileLimit, Sharding, VmapAxis, policy_of, tolerance_of
from .writers import (
    write_limit,
    write_names,
    write_pad,
    write_precision,
    write_shard,
    write_vmap,
)


def _is_auto(value: object) -> bool:
    return value == AUTO


def _is_of_programs(cache: object) -> bool:
    return cache == "program"


def _is_later(checks: object) -> bool:
    return checks == "later"


def _padding(options: Options) -> Iterable[Change]:
    return [("pad", tuple(name for name, _ in options.pad))] if options.pad else []


def _cutting(options: Options) -> Iterable[Change]:
    name = "accumulate" if options.accumulate else "chunk"
    return [(name, tuple(axis for axis, _ in options.chunk))] if options.chunk else []


def _fitting(options: Options) -> Iterable[Change]:
    is_measured = options.memory is not None or options.on_memory_error == "chunk"
    return [("memory", ())] if is_measured and not options.chunk else []


def _rematerialising(options: Options) -> Iterable[Change]:
    return [] if options.remat is None else [("remat", ())]


def _rolling(options: Options) -> Iterable[Change]:
    return [] if options.roll is None else [("roll", ())]


def _casting(options: Options) -> Iterable[Change]:
    precision = options.precision
    if precision is None or precision == "f64":
        return []
    policy = policy_of(precision)
    types = [str(precision)] if tolerance_of(precision) is None else ["bf16"]
    return [(f"precision={name}", ()) for name in (types if policy is None else policy.types)]


def _compiling(options: Options) -> Iterable[Change]:
    return [("compiler", ())] if options_of(options.compiler) else []


def _sharding(options: Options) -> Iterable[Change]:
    shard = options.shard
    return [] if shard is None else [("shard", tuple(name for name, _ in shard.axes))]


def _sharing(options: Options) -> Iterable[Change]:
    return [] if options.workers is None else [("workers", (options.vmap[0].name,))]


@dataclass(frozen=True)
class Options:
    """Options of one decoration. Two equal functions share programs if their options are equal too.

    `compiler`, `debug_nans`, `auto` and `verify` are None where the choice is left to the settings
    of the process; `settled()` puts those in.

    Two fields are set by jitney instead of the user. They are here because they, too, determine
    which programs can be shared.
    """

    static: tuple[str, ...] = option(default=(), read_as=read_names, write=write_names)
    donate: tuple[str, ...] = option(
        default=(),
        read_as=read_names,
        write=write_names,
        plain=(),
        nested=bool,
    )
    vmap: tuple[VmapAxis, ...] = option(default=(), read=read_vmap, write=write_vmap)
    pad: tuple[tuple[str, Bucket], ...] = option(
        default=(),
        read=read_pad,
        write=write_pad,
        plain=(),
        nested=bool,
        rounds=True,
        changes=_padding,
    )
    ragged: str = option(default="list", read_as=choice("list", "padded"))
    chunk: tuple[tuple[str, int | str], ...] = option(
        default=(),
        read=read_chunk,
        write=dict,
        plain=(),
        nested=bool,
        rounds=True,
        changes=_cutting,
    )
    memory: int | str | None = option(
        default=None,
        read=read_memory,
        plain=None,
        rounds=True,
        changes=_fitting,
    )
    remat: str | RematPolicy | None = option(
        default=None,
        read=read_policy,
        plain=None,
        nested=_is_auto,
        rounds=True,
        changes=_rematerialising,
    )
    roll: str | None = option(
        default=None,
        read=read_roll,
        plain=None,
        nested=_is_auto,
        rounds=True,
        changes=_rolling,
    )
    # The tolerances of `precision` are those of its types.
    precision: str | tuple[tuple[str, str], ...] | None = option(
        default=None,
        read=read_precision,
        write=write_precision,
        plain=None,
        changes=_casting,
    )
    cache: bool | Literal["program"] = option(default=True, read=read_cache, nested=_is_of_programs)
    contracts: bool = option(default=True, read_as=read_flag, plain=False)
    runtime_checks: str = option(
        default="now",
        read_as=choice("now", "later"),
        plain="now",
        nested=_is_later,
    )
    on_trace_error: str = option(default="raise", read_as=choice("raise", "eager"))
    on_compile_error: str = option(
        default="raise",
        read_as=choice("raise", "eager"),
        plain="raise",
    )
    on_memory_error: str = option(
        default="raise",
        read_as=choice("raise", "chunk", "eager"),
        plain="raise",
    )
    max_compiles: CompileLimit | None = option(
        default=None, read=read_max_compiles, write=write_limit
    )
    compiler: str | CompilerOptions | None = option(
        default=None,
        read=read_compiler,
        plain="default",
        nested=options_of,
        rounds=True,
        changes=_compiling,
    )
    debug_nans: bool | None = option(
        default=None,
        read_as=read_setting,
        plain=False,
        nested=bool,
    )
    shard: Sharding | None = option(
        default=None,
        read=read_shard,
        write=write_shard,
        plain=None,
        nested=is_given,
        rounds=True,
        changes=_sharding,
    )
    mesh: jax.sharding.Mesh | str | None = option(default=None, read=read_mesh, plain=None)
    verify: bool | None = option(default=None, read_as=read_setting, plain=False)
    workers: int | str | None = option(
        default=None,
        read=read_workers,
        plain=None,
        nested=is_given,
        rounds=True,
        changes=_sharing,
    )
    auto: bool | str | None = option(default=None, read=read_auto, plain=False, nested=bool)
    progress: bool = option(default=False, read_as=read_flag, plain=False)
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
    def plain(self) -> Options:
        """The options without those that may change the computation."""
        return replace(self, **_PLAIN)

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
_PLAIN = {name: each.plain for name, each in OPTIONS.items() if each.plain is not MEANING}
