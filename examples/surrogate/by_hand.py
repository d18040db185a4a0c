"""What `_step.py` and `_validate.py` leave to jitney, as one writes it without: masks through the
network, buckets, shardings, donation.

The network is written once more, with what is inside at each place where the number of variables or
of sets is read: the softmax over variables, their mean, the logarithm of the softmax over sets, and
the two losses. It is what `tests/devices/examples/test_surrogate.py` compares `step_of(...)` with,
and `predict`, and what `tests/perf/automation.py` counts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import xlogy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._losses import FLOOR
from ._step import Recipe, updated
from .model import Attention, Scorer, Surrogate

BUCKETS = {"example": (32, 256, 1024), "vars": (4, 6, 8, 12, 20), "sets": (8, 29, 67, 191)}


def attention(layer: Attention, x: Any, inside: Any = None) -> Any:
    """`Attention.__call__`, to rows inside alone."""
    y = layer.norm(x)
    split = partial(jnp.reshape, shape=(*x.shape[:2], layer.heads, -1))
    query, key, value = split(layer.query(y)), split(y @ layer.key.T), split(layer.value(y))
    score = jnp.einsum("ornk,osnk->onrs", query, key) * query.shape[-1] ** -0.5
    weight = jax.nn.softmax(
        score if inside is None else jnp.where(inside, score, -jnp.inf), axis=-1
    )
    return x + layer.out(jnp.einsum("onrs,osnk->ornk", weight, value).reshape(*x.shape))


def embedded(model: Surrogate, x: Any, inside: Any) -> Any:
    """`Surrogate.embed`, of the variables inside."""
    h = model.first(x)
    for block in model.blocks:
        h = block.feeds[0](jnp.swapaxes(attention(block.samples, jnp.swapaxes(h, 0, 1)), 0, 1))
        h = block.feeds[1](attention(block.vars, h, inside))
    return model.norm(jnp.max(h, axis=0))


def scores(scorer: Scorer, x: Any, target: Any, index: Any, mask: Any, inside: Any) -> Any:
    """`Scorer.__call__`, with the mean over the variables inside."""
    members = jnp.sum(jnp.where(mask[:, :, None], scorer.member(x)[index], 0.0), axis=1)
    mean = jnp.sum(jnp.where(inside[:, None], x, 0.0), axis=0) / jnp.sum(inside)
    return (
        jax.nn.gelu(scorer.norm(members + scorer.target(target @ x) + scorer.all(mean)))
        @ scorer.out
    )


def predicted(model: Surrogate, sizes: Any, x: Any, index: Any, mask: Any) -> Any:
    """`Surrogate.__call__` of the first variables and sets; minus infinity for other sets."""
    inside, inside_sets = jnp.arange(x.shape[1]) < sizes[0], jnp.arange(index.shape[0]) < sizes[1]
    score = scores(model.scorer, embedded(model, x, inside), x[0, :, 2], index, mask, inside)
    return jax.nn.log_softmax(jnp.where(inside_sets, score, -jnp.inf))


def kl(model: Surrogate, sizes: Any, x: Any, index: Any, mask: Any, expert: Any) -> Any:
    """`divergence`; the expert is 0 where sets are not inside."""
    log_q = predicted(model, sizes, x, index, mask)
    return jnp.sum(
        xlogy(expert, expert)
        - expert * jnp.where(jnp.arange(index.shape[0]) < sizes[1], log_q, 0.0)
    )


def weighted(model: Surrogate, sizes: Any, x: Any, index: Any, mask: Any, expert: Any) -> Any:
    """`weighted`, with the number of sets inside."""
    certainty = 1 + jnp.sum(xlogy(expert, expert)) / jnp.log(sizes[1].astype(expert.dtype))
    return (FLOOR + (1 - FLOOR) * certainty) * kl(model, sizes, x, index, mask, expert)


LOSSES = {"kl": kl, "weighted": weighted}


def bucket(name: str, size: int) -> int:
    """The next size that has a program."""
    return next(each for each in BUCKETS[name] if each >= size)


def padded(pad: bool, x: Any, index: Any, mask: Any, *expert: Any) -> tuple[Any, ...]:
    """Arrays brought to the next sizes, after the sizes of variables and sets that they have."""
    sizes = np.array([x.shape[2], index.shape[1]], np.int32)
    if not pad:
        return sizes, x, index, mask, *expert
    more_vars, more_sets = bucket("vars", sizes[0]) - sizes[0], bucket("sets", sizes[1]) - sizes[1]
    x = np.pad(x, ((0, 0), (0, 0), (0, more_vars), (0, 0)))
    index, mask = (np.pad(each, ((0, 0), (0, more_sets), (0, 0))) for each in (index, mask))
    return sizes, x, index, mask, *(np.pad(each, ((0, 0), (0, more_sets))) for each in expert)


def shardings(mesh: Mesh, tree: Any, fsdp: bool) -> Any:
    """Where the arrays of a model or of an optimiser's state lie: whole, or cut along the largest
    axis that divides.
    """

    def of(leaf: Any) -> NamedSharding:
        divides = [axis for axis, size in enumerate(leaf.shape) if size % mesh.shape["data"] == 0]
        if not fsdp or not divides:
            return NamedSharding(mesh, PartitionSpec())
        axis = max(divides, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*[None] * axis, "data"))

    return jax.tree.map(of, tree)


def program(
    recipe: Recipe, model: Any, opt: Any, mesh: Mesh | None = None, fsdp: bool = False
) -> tuple[Any, Any, Any]:
    """The compiled step from arrays to arrays, where these lie (None for anywhere), and all of
    model and state that is not an array.
    """
    arrays, rest = eqx.partition((model, opt), eqx.is_array)

    def step(arrays: Any, sizes: Any, *batch: Any) -> Any:
        model, opt = eqx.combine(arrays, rest)

        def mean(model: Any) -> Any:
            return jnp.mean(
                jax.vmap(LOSSES[recipe.loss], (None, None, 0, 0, 0, 0))(model, sizes, *batch)
            )

        value, gradient = eqx.filter_value_and_grad(mean)(model)
        after = updated(recipe, model, opt, gradient)
        return eqx.filter(after, eqx.is_array), {"loss": value, "norm": optax.tree.norm(gradient)}

    if mesh is None:
        return jax.jit(step, donate_argnums=0), None, rest
    state, data, whole = (
        shardings(mesh, arrays, fsdp),
        NamedSharding(mesh, PartitionSpec("data")),
        NamedSharding(mesh, PartitionSpec()),
    )
    along = {"in_shardings": (state, whole, data, data, data, data), "out_shardings": (state, None)}
    return jax.jit(step, donate_argnums=0, **along), state, rest


def step_of(
    recipe: Recipe, pad: bool = True, mesh: Mesh | None = None, fsdp: bool = False
) -> Callable[..., tuple[Surrogate, Any, Any]]:
    """The step, for all models and states of one structure.

    Args:
        recipe: How to train.
        pad: Whether numbers of variables and of sets share programs, by `BUCKETS`.
        mesh: Devices along an axis `data`; None for one device.
        fsdp: Whether devices share weights and moments too.
    """
    programs: dict[Any, tuple[Any, Any, Any]] = {}

    def step(
        model: Surrogate, opt: Any, x: Any, index: Any, mask: Any, expert: Any
    ) -> tuple[Surrogate, Any, Any]:
        structure = jax.tree.structure((model, opt))
        if structure not in programs:
            programs[structure] = program(recipe, model, opt, mesh, fsdp)
        jitted, where, rest = programs[structure]
        arrays = eqx.filter((model, opt), eqx.is_array)
        arrays, metrics = jitted(
            arrays if where is None else jax.device_put(arrays, where),
            *padded(pad, x, index, mask, expert),
        )
        return *eqx.combine(arrays, rest), metrics

    return step


@eqx.filter_jit
def _predictions(model: Surrogate, sizes: Any, x: Any, index: Any, mask: Any) -> Any:
    return jax.vmap(predicted, (None, None, 0, 0, 0))(model, sizes, x, index, mask)


def predict(model: Surrogate, x: Any, index: Any, mask: Any) -> Any:
    """Log probabilities of the sets of each example: `predict` of `_validate.py`."""
    examples, sets = mask.shape[:2]
    more = bucket("example", examples) - examples
    sizes, *arrays = padded(True, x, index, mask)
    arrays = [
        np.pad(each, ((0, more), *[(0, 0)] * (each.ndim - 1)), mode="edge") for each in arrays
    ]
    return _predictions(model, sizes, *arrays)[:examples, :sets]
