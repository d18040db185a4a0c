"""How long `jitney.simulation.simulate` takes for a transformer on 2,048 devices, and what it counts, against
a closed form.

Run from the project's root: `python -m tests.perf.simulate`. The model has no numbers. Operations
are compared with two for each parameter and token forward, as many again where a block is computed
anew for the backward pass, but for its last product, and twice that backward, besides the products
of attention. Words are looked up, and multiplied at the end by all devices along `model` alike. The
largest resident size of both processes is printed too.
"""

import resource
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

import jitney
from examples._figures import record

DEPTH, WIDTH, HEADS, WORDS, TIME, BATCH = 24, 4096, 32, 32000, 2048, 1024


class Block(eqx.Module):
    """Attention and a network behind it, without normalisation."""

    mix: Float[Array, "three heads d"]
    out: Float[Array, "d heads"]
    up: Float[Array, "hidden d"]
    down: Float[Array, "d hidden"]

    def __call__(self, x):
        batch, time, _ = x.shape
        q, k, v = (
            jnp.einsum("btd,hd->bth", x, each).reshape(batch, time, HEADS, -1) for each in self.mix
        )
        weights = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH / HEADS) ** 0.5
        weights = jax.nn.softmax(jnp.where(jnp.tri(time, dtype=bool), weights, -1e30))
        x = x + jnp.einsum(
            "bth,dh->btd", jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape), self.out
        )
        return x + jnp.einsum(
            "bth,dh->btd", jax.nn.gelu(jnp.einsum("btd,hd->bth", x, self.up)), self.down
        )


class Model(eqx.Module):
    """Blocks, each computed anew for the backward pass."""

    words: Float[Array, "word d"]
    blocks: list[Block]

    def __call__(self, tokens):
        x = self.words[tokens]
        for block in self.blocks:
            x = eqx.filter_checkpoint(block)(x)
        return x @ self.words.T


@jitney.optimize(shard={"batch": "data", "heads": "model", "hidden": "model"}, precision="bf16")
def loss(
    model: Model, tokens: Int[Array, "batch time"], labels: Int[Array, "batch time"]
) -> Float[Array, ""]:
    """Cross-entropy."""
    logits = jax.nn.log_softmax(model(tokens))
    return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))


def abstract(*shape: int) -> jax.ShapeDtypeStruct:
    """An array without numbers."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def main(data: int = 256, parts: int = 8) -> None:
    """Simulate, compare, print."""
    four, wide = (abstract(WIDTH, WIDTH), 4 * WIDTH)
    block = Block(abstract(3, WIDTH, WIDTH), four, abstract(wide, WIDTH), abstract(WIDTH, wide))
    model = Model(abstract(WORDS, WIDTH), [block] * DEPTH)
    tokens = jax.ShapeDtypeStruct((BATCH, TIME), jnp.int32)
    began = time.perf_counter()
    found = jitney.simulation.simulate(
        loss.grad,
        model,
        tokens,
        tokens,
        mesh={"data": data, "model": parts},
        device="h200",
        wrt="model",
    )
    seconds = time.perf_counter() - began
    print(found)
    block_flops = 8 * 12 * WIDTH**2 - 2 * 4 * WIDTH**2 + 4 * 4 * TIME * WIDTH
    expected = BATCH * TIME * (DEPTH * block_flops / parts + 6 * WORDS * WIDTH) / data
    print(f"products {found.products['bf16']:.5g}, by hand {expected:.5g}")
    peak = [
        resource.getrusage(who).ru_maxrss / 2**20
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    print(
        f"memory of this process {peak[0]:.2g} GiB, of the other {peak[1]:.2g} GiB, {seconds:.1f} s"
    )
    record(seconds=seconds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
