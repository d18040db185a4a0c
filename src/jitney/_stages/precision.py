"""Stage that computes the body in another floating-point type; arguments and results keep theirs.

It handles `"bf16-all"`, `"fp16-all"`, `"f32"`, `"f64"` and `"tf32"`. `"bf16"` and `"fp16"` cast
products only (`autocast.py`).

Every floating-point argument is cast on the way in, unless its annotation names an exact dtype
(`Float32[...]`). Every result in the compute type is cast back to the widest dtype of the arguments
that are not exact. Arrays that the body creates or closes over are not cast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from .. import _precision
from .._errors import OptionError, Where
from .._jax.trees import Tracer
from .._jax.typed import Array, DType
from .._owners import user_line
from .._signature.hints import ArrayHint
from .._signature.options import policy_of, tolerance_of
from .._view.result import Outcome
from .._view.view import Leaf, View
from .autocast import Autocast, body_of
from .stage import Fn, Request, Skip, Stage

COMPUTE = {
    "bf16-all": jnp.bfloat16,
    "fp16-all": jnp.float16,
    "f32": jnp.float32,
    "f64": jnp.float64,
}
_REFUSES = ("bf16-all", "fp16-all")


@dataclass(frozen=True)
class Precision(Stage):
    """Casts in and out; under `tf32`, the precision of matrix products."""

    policy: str
    cast: tuple[bool, ...]
    back: str | None
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="precision", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Autocast | Skip:
        policy = request.options.precision
        if policy is None:
            return Skip("precision", "no `precision` given")
        if policy_of(policy) is not None or tolerance_of(policy) is not None:
            return Autocast.plan(view, request)
        policy = str(policy)

        if policy == "tf32":
            return cls(
                policy,
                (),
                None,
                request.where,
                "matrix products in tensorfloat32 where the device has it",
            )

        cast = tuple(_is_cast(leaf, COMPUTE[policy]) for leaf in view.leaves)
        if not any(cast):
            return Skip("precision", f"no argument to cast to {np.dtype(COMPUTE[policy])}")

        # Exact arguments do not decide the dtype of the results.
        others = [leaf.dtype for leaf in view.leaves if not _exact(leaf)]
        back = _widest(list(filter(_is_real, others)))
        paths = [leaf.path for leaf in view.leaves if _exact(leaf)]
        exact = f"; {', '.join(paths)} keeps its exact dtype" if paths else ""
        return cls(
            policy,
            cast,
            str(back),
            request.where,
            f"{sum(cast)} of {len(cast)} arrays computed in {np.dtype(COMPUTE[policy])}, "
            f"results back to {back}{exact}",
        )

    def inner(self, view: View) -> View:
        if self.policy == "tf32":
            return view
        low = np.dtype(COMPUTE[self.policy])
        leaves: list[Leaf] = []
        for leaf, is_cast in zip(view.leaves, self.cast, strict=True):
            leaves.append(replace(leaf, dtype=low) if is_cast else leaf)
        return View(tuple(leaves))

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        return self._matmul(fn) if self.policy == "tf32" else self._casting(fn)

    def _matmul(self, fn: Fn) -> Fn:
        def in_tf32(*arrays: Array) -> Sequence[Array]:
            with jax.default_matmul_precision("tensorfloat32"):
                return fn(*arrays)

        return in_tf32

    def _casting(self, fn: Fn) -> Fn:
        low = np.dtype(COMPUTE[self.policy])

        def cast(*arrays: Array) -> Sequence[Array]:
            inside: list[Array] = []
            for array, is_cast in zip(arrays, self.cast, strict=True):
                inside.append(_astype(array, low) if is_cast else array)
            # A policy that refuses nothing looks at no array.
            if self.policy in _REFUSES and any(isinstance(array, Tracer) for array in arrays):
                outs = self._check_and_run(fn, inside)
            else:
                outs = fn(*inside)
            return [
                _astype(out, np.dtype(self.back)) if _dtype(out) == low else out for out in outs
            ]

        return cast

    def _check_and_run(
        self,
        fn: Fn,
        arrays: Sequence[Array],
    ) -> Sequence[Array]:
        """Run the body after a check that it neither solves nor factorises in the low type.

        Raises:
            OptionError: The body does.
        """
        low = np.dtype(COMPUTE[self.policy])
        try:
            body = body_of(fn, arrays)
        # jax 0.12 raises while it traces; the message has the primitive but not the user's line.
        except TypeError as error:
            primitive = re.search(rf"(\w+) does not accept dtype {low}", str(error))
            if primitive is None or primitive[1] not in _precision.SOLVERS:
                raise
            raise self._refusal(primitive[1], user_line(error)) from error
        broken = _precision.breaks_low(body, low)
        if broken is not None:
            raise self._refusal(*broken)
        return core.jaxpr_as_fun(body)(*arrays)

    def _refusal(
        self,
        name: str,
        line: str | None,
    ) -> OptionError:
        autocast = self.policy.removesuffix("-all")
        place = f" at {line}" if line else ""
        return OptionError(
            self.where,
            f"`{name}`{place} would be computed in {np.dtype(COMPUTE[self.policy])}, under"
            f" precision={self.policy!r}.",
            "QR, SVD, eigenvalues, Cholesky, LU and linear solves have no low type: their kernels"
            " are LAPACK's, and rounding is amplified by the condition of the matrix.",
            f'write precision="{autocast}": it casts products only, and solves stay in float32.',
            code="J201",
        )


def _astype(array: Array, dtype: DType) -> jax.Array:
    return jax.lax.convert_element_type(array, dtype)


def _dtype(array: object) -> object:
    return getattr(array, "dtype", None)


def _exact(leaf: Leaf) -> bool:
    if not isinstance(leaf.hint, ArrayHint) or leaf.hint.exact_dtype is None:
        return False
    return _is_real(leaf.dtype)


def _is_real(dtype: DType) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def _is_cast(leaf: Leaf, low: DType) -> bool:
    return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low) and not _exact(leaf)


def _widest(dtypes: Sequence[DType]) -> DType:
    return max(map(np.dtype, dtypes), key=lambda dtype: dtype.itemsize)
