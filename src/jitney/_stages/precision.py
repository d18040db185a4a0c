"""Compute the body in another floating-point type; arguments and results keep theirs.

Every array argument of a floating type is cast on the way in, unless its annotation names an exact dtype (`Float32[...]`); every result
that comes out in the compute type is cast back to the widest type that was cast. Values that the body makes or closes over are
as the body makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .._annotations import ArrayHint
from .._stage import Fn, Request, Skip
from .._view import Leaf, View

COMPUTE = {"bf16-all": jnp.bfloat16, "fp16-all": jnp.float16, "f32": jnp.float32, "f64": jnp.float64}


@dataclass(frozen=True)
class Precision:
    """Casts in and out, or (`tf32`) the precision of matrix products."""

    policy: str
    cast: tuple[bool, ...]
    back: str | None
    why: str = field(compare=False)
    name: str = field(default="precision", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        policy = request.options.precision
        if policy is None:
            return Skip("precision", "no `precision` given")
        if policy == "tf32":
            return cls(policy, (), None, "matrix products in tensorfloat32 where the device has it")
        cast = tuple(_is_cast(leaf, COMPUTE[policy]) for leaf in view.leaves)
        if not any(cast):
            return Skip("precision", f"no argument to cast to {np.dtype(COMPUTE[policy])}")
        back = _widest([leaf.dtype for leaf in view.leaves if _is_real(leaf.dtype) and not _exact(leaf)])
        kept = [leaf.path for leaf in view.leaves if _exact(leaf)]
        exact = f"; {', '.join(kept)} keeps its exact dtype" if kept else ""
        return cls(policy, cast, str(back), f"{sum(cast)} of {len(cast)} arrays computed in {np.dtype(COMPUTE[policy])}, "
                   f"results back to {back}{exact}")  # fmt: skip

    def inner(self, view: View) -> View:
        if self.policy == "tf32":
            return view
        low = np.dtype(COMPUTE[self.policy])
        return View(tuple(replace(leaf, dtype=low) if c else leaf for leaf, c in zip(view.leaves, self.cast, strict=True)))

    def wrap(self, fn: Fn) -> Fn:
        return self._matmul(fn) if self.policy == "tf32" else self._casting(fn)

    def _matmul(self, fn: Fn) -> Fn:
        def in_tf32(*arrays: Any) -> Sequence[Any]:
            with jax.default_matmul_precision("tensorfloat32"):
                return fn(*arrays)

        return in_tf32

    def _casting(self, fn: Fn) -> Fn:
        low = np.dtype(COMPUTE[self.policy])

        def cast(*arrays: Any) -> Sequence[Any]:
            inside = [_astype(a, low) if chosen else a for a, chosen in zip(arrays, self.cast, strict=True)]
            return [_astype(out, np.dtype(self.back)) if _dtype(out) == low else out for out in fn(*inside)]

        return cast


def _astype(array: Any, dtype: np.dtype) -> Any:
    return jax.lax.convert_element_type(array, dtype)


def _dtype(array: Any) -> Any:
    return getattr(array, "dtype", None)


def _exact(leaf: Leaf) -> bool:
    return isinstance(leaf.hint, ArrayHint) and leaf.hint.exact_dtype is not None and _is_real(leaf.dtype)


def _is_real(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def _is_cast(leaf: Leaf, low: Any) -> bool:
    return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low) and not _exact(leaf)


def _widest(dtypes: Sequence[Any]) -> np.dtype:
    return max((np.dtype(dtype) for dtype in dtypes), key=lambda dtype: dtype.itemsize)
