"""Writers of options: from what `Options` holds back to what an author writes.

write_pad((("n", Bucket(ladder="pow2")),))  ->  {"n": "pow2"}
"""

from __future__ import annotations

from ..buckets import Bucket
from .values import CompileLimit, Sharding, VmapAxis


def bucket_spelling(bucket: Bucket) -> object:
    """Shortest spelling of a bucket: the name of its ladder, its sizes, or the whole `Bucket`."""
    if bucket.count is not None:
        return bucket
    return bucket.ladder or (bucket if bucket.sizes is None else [*bucket.sizes])


def write_names(names: tuple[str, ...]) -> object:
    return names[0] if len(names) == 1 else names


def write_vmap(axes: tuple[VmapAxis, ...]) -> object:
    if len(axes) == 1 and axes[0].dims is None:
        return axes[0].name
    return {axis.name: dict(axis.dims or ()) for axis in axes}


def write_pad(pad: tuple[tuple[str, Bucket], ...]) -> object:
    return {name: bucket_spelling(bucket) for name, bucket in pad}


def write_precision(precision: str | tuple[tuple[str, str], ...]) -> object:
    return precision if isinstance(precision, str) else dict(precision)


def write_limit(limit: CompileLimit) -> object:
    return limit.count if limit.past == "warn" else f"{limit.past}:{limit.count}"


def write_shard(shard: Sharding) -> object:
    axes = {name: write_names(along) for name, along in shard.axes}
    if not axes:
        return "fsdp"
    return ("fsdp", axes) if shard.fsdp else axes
