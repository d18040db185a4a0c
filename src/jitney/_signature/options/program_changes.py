"""Changes that each option may make to a program: what `verify` compares, and how strictly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..._jax.xla.compiler import options_of
from .option import Change
from .values import policy_of, tolerance_of

if TYPE_CHECKING:
    from .table import Options


def padding(options: Options) -> Iterable[Change]:
    return [("pad", tuple(name for name, _ in options.pad))] if options.pad else []


def cutting(options: Options) -> Iterable[Change]:
    name = "accumulate" if options.accumulate else "chunk"
    return [(name, tuple(axis for axis, _ in options.chunk))] if options.chunk else []


def fitting(options: Options) -> Iterable[Change]:
    is_measured = options.memory is not None or options.on_memory_error == "chunk"
    return [("memory", ())] if is_measured and not options.chunk else []


def rematerialising(options: Options) -> Iterable[Change]:
    return [] if options.remat is None else [("remat", ())]


def rolling(options: Options) -> Iterable[Change]:
    return [] if options.roll is None else [("roll", ())]


def casting(options: Options) -> Iterable[Change]:
    precision = options.precision
    if precision is None or precision == "f64":
        return []
    policy = policy_of(precision)
    types = [str(precision)] if tolerance_of(precision) is None else ["bf16"]
    return [(f"precision={name}", ()) for name in (types if policy is None else policy.types)]


def compiling(options: Options) -> Iterable[Change]:
    return [("compiler", ())] if options_of(options.compiler) else []


def sharding(options: Options) -> Iterable[Change]:
    shard = options.shard
    return [] if shard is None else [("shard", tuple(name for name, _ in shard.axes))]


def sharing(options: Options) -> Iterable[Change]:
    return [] if options.workers is None else [("workers", (options.vmap[0].name,))]
