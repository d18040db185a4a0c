"""One step of training, compiled: the gradient of the mean loss, a clip by its norm, AdamW.

The loss is written for one example and mapped; the step is written for one batch, and its buffers
are donated. Numbers of variables share programs by `pad`: with these buckets, batches of 3 to 20
variables compile five. `pad` stands on the step, the outermost program, since inside another
program the sizes are that program's; jitney proves the gradient and all, as it is traced in the
body.

Within a mesh of devices each has its share of the examples, and XLA adds up the gradients. With
`fsdp` each also keeps but its share of every weight and of the moments that belong to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

import jitney

from ._losses import LOSSES
from .model import Surrogate

# 3 and 4 variables, 5 and 6, 7 and 8, 9 to 12, 13 to 20
PAD = {"vars": [4, 6, 8, 12, 20], "sets": [8, 29, 67, 191]}


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        steps: In all.
        rate: The largest learning rate, after a warm-up over the first tenth of the steps; a cosine
            brings it down to a hundredth.
        clip: The largest global norm of a gradient.
        decay: Weight decay.
        loss: `"kl"`, or `"weighted"` by the expert's certainty.
    """

    steps: int = 2500
    rate: float = 3e-3
    clip: float = 1.0
    decay: float = 1e-4
    loss: str = "weighted"

    def optimiser(self) -> optax.GradientTransformation:
        """The chain of transformations of the gradient."""
        warm_up = max(self.steps // 10, 1)
        rate = optax.warmup_cosine_decay_schedule(
            self.rate / 100, self.rate, warm_up, max(self.steps, warm_up + 1), self.rate / 100
        )
        return optax.chain(
            optax.clip_by_global_norm(self.clip), optax.adamw(rate, weight_decay=self.decay)
        )


def start(recipe: Recipe, model: Surrogate) -> Any:
    """The state of the optimiser before the first step."""
    return recipe.optimiser().init(eqx.filter(model, eqx.is_inexact_array))


def updated(
    recipe: Recipe, model: Surrogate, opt: Any, gradient: Surrogate
) -> tuple[Surrogate, Any]:
    """Model and state after a gradient."""
    change, opt = recipe.optimiser().update(gradient, opt, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, change), opt


def loss_of(
    recipe: Recipe, precision: str | None = None, remat: str | bool | None = None, pad: Any = None
) -> Any:
    """The loss of one example as a program that is mapped over examples.

    Args:
        recipe: Which loss.
        precision: As in `jitney.optimize`: None computes in the dtype of the weights.
        remat: As in `jitney.optimize`.
        pad: Of a loss that is called by itself, as in a validation.
    """
    return jitney.optimize(vmap="example", precision=precision, remat=remat, pad=pad)(
        LOSSES[recipe.loss]
    )


def step_of(
    recipe: Recipe,
    precision: str | None = None,
    remat: str | bool | None = None,
    pad: Any = PAD,
    fsdp: bool = False,
    donate: bool = True,
) -> Callable[..., tuple[Surrogate, Any, dict[str, Any]]]:
    """The step as one program for each bucket. See `loss_of` for the other options.

    Args:
        recipe: How to train.
        precision: As in `jitney.optimize`.
        remat: As in `jitney.optimize`.
        pad: Buckets.
        fsdp: Whether devices share weights and moments too.
        donate: Whether weights and moments are updated in place.
    """
    loss = loss_of(recipe, precision, remat)

    @jitney.optimize(
        donate=("model", "opt") if donate else (),
        pad=pad,
        shard=("fsdp", {"example": "*"}) if fsdp else {"example": "*"},
        mesh="optional",
    )
    def step(
        model: Surrogate,
        opt: PyTree,
        x: Float[Array, "example samples vars 3"],
        index: Int[Array, "example sets parents"],
        mask: Bool[Array, "example sets parents"],
        expert: Float[Array, "example sets"],
    ) -> tuple[Surrogate, PyTree, dict[str, Array]]:
        def mean(model: Surrogate) -> Array:
            return jnp.mean(loss(model, x, index, mask, expert))

        value, gradient = eqx.filter_value_and_grad(mean)(model)
        model, opt = updated(recipe, model, opt, gradient)
        return model, opt, {"loss": value, "norm": optax.tree.norm(gradient)}

    return step
