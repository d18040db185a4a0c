"""Types of what an author writes for options that take several forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..buckets import Bucket

Names = str | tuple[str, ...] | list[str]
Along = Mapping[str, str | Sequence[str]]
Shard = Literal["fsdp"] | Along | tuple[Literal["fsdp"], Along]
Product = Literal["bf16", "fp16", "f32"]
# Any tolerance is valid; these are the ones that type checkers know.
Tolerance = Literal[
    "auto:1e-1",
    "auto:1e-2",
    "auto:1e-3",
    "auto:1e-4",
    "auto:1e-5",
    "auto:1e-6",
    "auto:5e-2",
    "auto:5e-3",
    "auto:5e-4",
]
Precision = (
    Literal["bf16", "fp16", "bf16-all", "fp16-all", "f32", "f64", "tf32"]
    | Tolerance
    | Mapping[str, Product]
)
Compiler = Literal["default", "fast"] | Mapping[str, bool | float | str]
Buckets = Literal["pow2", "aligned", "auto"] | Sequence[int] | Bucket
