"""Dynamic loss scaling for float16, whose gradients vanish below 6e-8 and overflow above 65504.

The loss is multiplied by a factor before its gradient is taken, and the gradient is divided by it.
A step whose gradient is not finite is skipped and lowers the factor; `period` finite steps in a row
raise it (Micikevicius et al., Mixed Precision Training, 2018). bfloat16 has the range of float32
and needs none of this.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._errors import OptionError, PrecisionWarning, TraceError, format_error
from .._jax.trees import Tracer, is_number, is_whole, issubdtype, tree_map
from .._owners import public, users_level
from .._public import public_in

T = TypeVar("T")
_WHERE = "jitney.LossScale()"


@public_in("jitney")
class LossScale(eqx.Module):
    """Factor of a loss whose gradient is computed in float16, with the number of steps it has cost.
    A pytree: part of the training state.

    ```python
    @jitney.optimize(donate=("model", "opt", "scale"))
    def step(model, opt, scale, x, y):
        grads = eqx.filter_grad(lambda model: scale.scale(loss(model, x, y)))(model)
        grads = scale.unscale(grads)
        finite = scale.all_finite(grads)
        updates, new_opt = optimiser.update(grads, opt)
        new_model = eqx.apply_updates(model, updates)
        return *scale.select(finite, (new_model, new_opt), (model, opt)), scale.adjust(finite)
    ```

    A factor at its `least` cannot be lowered. A gradient that is not finite then has another cause:
    every step is skipped, and the model stays as it is. Inside of `jit` this cannot be reported for
    free; call `scale.check()` where the loss is logged.

    Attributes:
        factor: Factor of the loss.
        streak: Finite steps since the factor last changed; below 0, minus `stuck`.
        skipped: Steps that were not finite, since the beginning.
        period: Number of finite steps in a row that raise the factor.
        growth: Ratio by which the factor is raised and lowered. A power of two changes no digit of
            the gradients.
        least: Lower limit of the factor.
        most: Upper limit of the factor.
    """

    factor: Float[Array, ""]
    streak: Int[Array, ""]
    skipped: Int[Array, ""]
    period: int = eqx.field(static=True)
    growth: float = eqx.field(static=True)
    least: float = eqx.field(static=True)
    most: float = eqx.field(static=True)

    @public
    def __init__(
        self,
        initial: float = 2.0**15,
        *,
        period: int = 2000,
        growth: float = 2.0,
        least: float = 1.0,
        most: float = 2.0**24,
    ) -> None:
        """Create a scale with its initial factor.

        Raises:
            OptionError: The numbers contradict each other.
        """
        numbers = all(map(is_number, (initial, growth, least, most))) and is_whole(period)
        if not numbers or not (0 < least <= initial <= most and growth > 1 and period >= 1):
            raise OptionError(
                _WHERE,
                f"{initial=}, {period=}, {growth=}, {least=}, {most=} cannot be.",
                "They are numbers: 0 < least <= initial <= most, growth > 1, period >= 1.",
                "leave out what need not be another.",
                code="J220",
            )
        self.factor = jnp.array(initial, jnp.float32)
        self.streak = jnp.array(0, jnp.int32)
        self.skipped = jnp.array(0, jnp.int32)
        self.period = period
        self.growth = float(growth)
        self.least = float(least)
        self.most = float(most)

    def scale(self, loss: T) -> T:
        """Multiply a loss, or a tree of losses, by the factor. Each keeps its dtype."""

        def scaled(leaf: object) -> object:
            if not _is_inexact(leaf):
                return leaf
            array = jnp.asarray(leaf)
            return array * self.factor.astype(array.dtype)

        return tree_map(scaled, loss)

    def unscale(self, grads: T) -> T:
        """Divide gradients of the scaled loss by the factor.

        Gradients of a low dtype come back in float32, which has room for small ones.
        """

        def unscaled(leaf: object) -> object:
            return _over(_wide(leaf), self.factor) if _is_inexact(leaf) else leaf

        return tree_map(unscaled, grads)

    def adjust(self, finite: Bool[Array, ""]) -> LossScale:
        """Return the scale for the next step.

        If the gradient was not finite, the factor is lowered and one more step counts as skipped.
        After `period` finite steps the factor is raised.
        """
        if _is_ready(self.streak):
            # Outside of `jit`, and only if the number is there: this must not wait for the device.
            self.check()
        streak = jnp.maximum(self.streak, 0) + 1
        raised = streak >= self.period
        # `streak` counts finite steps upwards, and steps that were skipped at the least factor
        # downwards.
        downwards = jnp.minimum(self.streak, 0) - 1
        stuck = jnp.where(self.factor <= self.least, downwards, 0)
        larger = jnp.minimum(self.factor * self.growth, self.most)
        higher = jnp.where(raised, larger, self.factor)
        lower = jnp.maximum(self.factor / self.growth, self.least)

        factor = jnp.where(finite, higher, lower)
        upwards = jnp.where(raised, 0, streak)
        streak = jnp.where(finite, upwards, stuck)
        skipped = jnp.where(finite, self.skipped, self.skipped + 1)
        changed = (
            factor.astype(jnp.float32),
            streak.astype(jnp.int32),
            skipped.astype(jnp.int32),
        )
        return eqx.tree_at(_numbers, self, changed)

    @property
    def stuck(self) -> Int[Array, ""]:
        """Number of consecutive steps, up to the last one, that were skipped at the least
        factor.
        """
        return jnp.maximum(-self.streak, 0)

    @public
    def check(self, steps: int = 40) -> bool:
        """Return whether the last `steps` steps were all skipped at the least factor, and warn if
        so.

        It reads one number from the device, and waits for the step that computes it: call it where
        the loss is logged.

        Args:
            steps: Number of steps. A single step may overflow at any factor.

        Raises:
            TraceError: It is called while a function is traced, when the count has no value yet.
        """
        if isinstance(self.streak, Tracer):
            raise TraceError(
                "jitney.LossScale.check()",
                "the step is traced.",
                "While it is traced, its counts have no value.",
                "call it on what the step returned, or use `scale.stuck` in the step.",
                code="J273",
            )
        if not np.any(np.asarray(self.streak) <= -steps):
            return False

        text = format_error(
            _WHERE,
            f"the last {steps} steps or more were skipped, all at the least factor,"
            f" {self.least:g}.",
            "A smaller factor mends gradients that overflow in float16; at the least one they are"
            " not finite for another reason.",
            'find it with debug_nans=True; train with precision="bf16", which has the range of'
            " float32; or give a smaller `least`.",
        )
        warnings.warn(text, PrecisionWarning, stacklevel=users_level())
        return True

    @staticmethod
    def all_finite(tree: object) -> Bool[Array, ""]:
        """Return whether no floating-point or complex number of a tree is a NaN or an infinity."""
        leaves = filter(_is_inexact, jax.tree.leaves(tree))
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
        return jnp.all(jnp.array(finite, bool))

    @staticmethod
    def select(
        finite: Bool[Array, ""],
        new: T,
        old: T,
    ) -> T:
        """Return the new tree if the step was finite, else the old one. Leaves that are not
        arrays are the new tree's.
        """

        def chosen(a: Any, b: Any) -> object:
            return jnp.where(finite, a, b) if eqx.is_array(a) else a

        return tree_map(chosen, new, old)


def _numbers(scale: LossScale) -> tuple[Array, Array, Array]:
    return scale.factor, scale.streak, scale.skipped


def _is_ready(count: Any) -> bool:
    """Return whether a count has a value that can be read without waiting."""
    if isinstance(count, Tracer) or not hasattr(count, "is_ready"):
        return False
    return count.is_ready()


def _is_inexact(leaf: Any) -> bool:
    if hasattr(leaf, "dtype"):
        return issubdtype(leaf.dtype, np.inexact)
    return isinstance(leaf, (float, complex))


def _wide(leaf: object) -> jax.Array:
    array = jnp.asarray(leaf)
    if array.dtype.itemsize < np.dtype(np.float32).itemsize:
        return array.astype(jnp.float32)
    return array


def _over(array: jax.Array, factor: jax.Array) -> jax.Array:
    """Divide an array by the factor, a complex one by parts: complex division turns infinities
    into NaN.
    """
    if jnp.iscomplexobj(array):
        real = _over(array.real, factor)
        imaginary = _over(array.imag, factor)
        return jax.lax.complex(real, imaginary)
    return array / factor.astype(array.dtype)
