"""Options in the form in which an author writes them, for the report of a program and for fixes in
messages.

`options.py` converts dicts to tuples for the key of the program; this module converts them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from .buckets import Bucket
from .options import CompileLimit, Options, Sharding, VmapAxis


def option_texts(options: Options) -> tuple[str, ...]:
    """Options that differ from the defaults, as source text: `donate='state'`, `pad={'n':
    'pow2'}`.
    """
    chosen = {field.name: getattr(options, field.name) for field in fields(options)}
    usual = Options()
    return tuple(
        f"{name}={_AS.get(name, _identity)(value)!r}"
        for name, value in chosen.items()
        if value != getattr(usual, name)
    )


def bucket_spelling(bucket: Bucket) -> object:
    """Shortest spelling of a bucket: the name of its ladder, its sizes, or the whole `Bucket`."""
    if bucket.count is not None:
        return bucket
    return bucket.ladder or (bucket if bucket.sizes is None else [*bucket.sizes])


def _identity(value: object) -> object:
    return value


def _names(names: tuple[str, ...]) -> object:
    return names[0] if len(names) == 1 else names


def _vmap(axes: tuple[VmapAxis, ...]) -> object:
    if len(axes) == 1 and axes[0].dims is None:
        return axes[0].name
    return {axis.name: dict(axis.dims or ()) for axis in axes}


def _pad(pad: tuple[tuple[str, Bucket], ...]) -> object:
    return {name: bucket_spelling(bucket) for name, bucket in pad}


def _by_path(precision: str | tuple[tuple[str, str], ...]) -> object:
    return precision if isinstance(precision, str) else dict(precision)


def _limit(limit: CompileLimit) -> object:
    return limit.count if limit.past == "warn" else f"{limit.past}:{limit.count}"


def _shard(shard: Sharding) -> object:
    axes = {name: _names(along) for name, along in shard.axes}
    if not axes:
        return "fsdp"
    return ("fsdp", axes) if shard.fsdp else axes


# Options without an entry are written as they are stored.
_AS: Mapping[str, Callable[[Any], object]] = {
    "static": _names,
    "donate": _names,
    "vmap": _vmap,
    "pad": _pad,
    "chunk": dict,
    "precision": _by_path,
    "max_compiles": _limit,
    "shard": _shard,
}
