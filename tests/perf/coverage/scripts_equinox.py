"""Losses as in the examples of Equinox, written anew: language and vision models, a mixer, a GAN, a
U-Net, spectral norms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ._arrays import KEY, normal, whole
from ._model import CUTS, PAIRS, STATE, Model, never


def cross_entropy(logits: Any, label: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.expand_dims(label, -1), axis=-1)


class Language(eqx.Module):
    embedding: eqx.nn.Embedding
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.embedding = eqx.nn.Embedding(6, 3, key=one)
        self.cell = eqx.nn.LSTMCell(3, 4, key=two)
        self.head = eqx.nn.Linear(4, 6, key=three)

    def __call__(self, token: Int[Array, "time"]) -> Float[Array, "time 6"]:
        def step(state: Any, x: Any) -> Any:
            state = self.cell(x, state)
            return state, self.head(state[0])

        return jax.lax.scan(step, (jnp.zeros(4), jnp.zeros(4)), jax.vmap(self.embedding)(token))[1]


def language(
    net: Language, token: Int[Array, "batch time"], target: Int[Array, "batch time"]
) -> Float[Array, ""]:
    return jnp.mean(cross_entropy(jax.vmap(net)(token), target))


class Attention(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, key: Any):
        one, two = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, 4, key=one)
        self.norm = eqx.nn.LayerNorm(4)
        self.mlp = eqx.nn.MLP(4, 4, 8, 1, activation=jax.nn.gelu, key=two)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h, mask=mask)
        return x + jax.vmap(self.mlp)(x)


class VisionTransformer(eqx.Module):
    patches: eqx.nn.Conv2d
    token: Array
    place: Array
    block: Attention
    head: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(KEY, 5)
        self.patches = eqx.nn.Conv2d(1, 4, kernel_size=4, stride=4, key=keys[0])
        self.token = jax.random.normal(keys[1], (1, 4))
        self.place = jax.random.normal(keys[2], (5, 4))
        self.block = Attention(keys[3])
        self.head = eqx.nn.Linear(4, 5, key=keys[4])

    def __call__(self, image: Float[Array, "1 8 8"]) -> Float[Array, "5"]:
        x = self.patches(image).reshape(4, -1).T
        x = jnp.concatenate([self.token, x]) + self.place
        return self.head(self.block(x)[0])


def vision(
    net: VisionTransformer, image: Float[Array, "batch 1 8 8"], label: Int[Array, "batch"]
) -> Float[Array, ""]:
    return jnp.mean(cross_entropy(jax.vmap(net)(image), label))


class Masked(eqx.Module):
    embedding: eqx.nn.Embedding
    block: Attention
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.embedding = eqx.nn.Embedding(6, 4, key=one)
        self.block = Attention(two)
        self.head = eqx.nn.Linear(4, 6, key=three)

    def __call__(self, token: Int[Array, "time"]) -> Float[Array, "time 6"]:
        seen = token > 0  # 0 fills a sentence
        x = self.block(
            jax.vmap(self.embedding)(token),
            mask=jnp.broadcast_to(seen[None], (token.size, token.size)),
        )
        return jax.vmap(self.head)(x)


def masked_language(
    net: Masked, token: Int[Array, "batch time"], target: Int[Array, "batch time"]
) -> Float[Array, ""]:
    wanted = (target > 0).astype(jnp.float32)
    losses = cross_entropy(jax.vmap(net)(token), target)[..., 0]
    return jnp.sum(losses * wanted) / jnp.sum(wanted)


class Mixer(eqx.Module):
    over_patches: eqx.nn.MLP
    over_channels: eqx.nn.MLP
    norm: eqx.nn.LayerNorm

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.over_patches = eqx.nn.MLP(4, 4, 8, 1, key=one)
        self.over_channels = eqx.nn.MLP(3, 3, 8, 1, key=two)
        self.norm = eqx.nn.LayerNorm((3, 4))

    def __call__(self, x: Float[Array, "3 4"]) -> Float[Array, "3 4"]:
        x = x + jax.vmap(self.over_patches)(self.norm(x))
        return x + jax.vmap(self.over_channels)(self.norm(x).T).T


def mixed(
    net: Mixer, x: Float[Array, "batch 3 4"], y: Float[Array, "batch 3 4"]
) -> Float[Array, ""]:
    return jnp.mean(jnp.abs(jax.vmap(net)(x) - y))


class Adversaries(eqx.Module):
    start: eqx.nn.Linear
    generator: eqx.nn.ConvTranspose2d
    discriminator: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(KEY, 4)
        self.start = eqx.nn.Linear(2, 2 * 4 * 4, key=keys[0])
        self.generator = eqx.nn.ConvTranspose2d(
            2, 1, kernel_size=4, stride=2, padding=1, key=keys[1]
        )
        self.discriminator = eqx.nn.Conv2d(1, 2, kernel_size=4, stride=2, padding=1, key=keys[2])
        self.head = eqx.nn.Linear(2 * 4 * 4, 1, key=keys[3])

    def make(self, key: Any) -> Any:
        return jnp.tanh(self.generator(self.start(jax.random.normal(key, (2,))).reshape(2, 4, 4)))

    def judge(self, image: Any) -> Any:
        return self.head(jax.nn.leaky_relu(self.discriminator(image)).reshape(-1))[0]


def adversarial(
    net: Adversaries, image: Float[Array, "batch 1 8 8"], key: Key[Array, ""]
) -> Float[Array, ""]:
    made = jax.vmap(net.make)(jax.random.split(key, image.shape[0]))
    real, fake = jax.vmap(net.judge)(image), jax.vmap(net.judge)(made)
    return jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake))


class UNet(eqx.Module):
    down: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    middle: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    up: eqx.nn.ConvTranspose2d
    out: eqx.nn.Conv2d

    def __init__(self):
        keys = jax.random.split(KEY, 4)
        self.down = eqx.nn.Conv2d(1, 2, kernel_size=3, padding=1, key=keys[0])
        self.pool = eqx.nn.MaxPool2d(kernel_size=2, stride=2)
        self.middle = eqx.nn.Conv2d(2, 2, kernel_size=3, padding=1, key=keys[1])
        self.norm = eqx.nn.GroupNorm(1, 2)
        self.up = eqx.nn.ConvTranspose2d(2, 2, kernel_size=2, stride=2, key=keys[2])
        self.out = eqx.nn.Conv2d(4, 1, kernel_size=1, key=keys[3])

    def __call__(self, image: Float[Array, "1 8 8"]) -> Float[Array, "1 8 8"]:
        high = jax.nn.silu(self.down(image))
        low = jax.nn.silu(self.norm(self.middle(self.pool(high))))
        return self.out(jnp.concatenate([high, self.up(low)]))


def segmented(
    net: UNet, image: Float[Array, "batch 1 8 8"], mask: Float[Array, "batch 1 8 8"]
) -> Float[Array, ""]:
    logits = jax.vmap(net)(image)
    return jnp.mean(jnp.maximum(logits, 0) - logits * mask + jnp.log1p(jnp.exp(-jnp.abs(logits))))


class Bounded(eqx.Module):
    first: eqx.nn.SpectralNorm
    second: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.first = eqx.nn.SpectralNorm(
            eqx.nn.Linear(3, 4, key=one), weight_name="weight", key=two
        )
        self.second = eqx.nn.Linear(4, 1, key=three)

    def __call__(
        self, x: Float[Array, "3"], state: eqx.nn.State
    ) -> tuple[Float[Array, "1"], eqx.nn.State]:
        x, state = self.first(x, state)
        return self.second(jax.nn.relu(x)), state


def bounded(
    net: Bounded, state: eqx.nn.State, x: Float[Array, "batch 3"], y: Float[Array, "batch 1"]
) -> tuple[Float[Array, ""], eqx.nn.State]:
    out, state = jax.vmap(net, in_axes=(0, None), out_axes=(0, None))(x, state)
    return jnp.mean((out - y) ** 2), state


def contrastive(
    net: eqx.nn.MLP, x: Float[Array, "batch 3"], y: Float[Array, "batch 3"]
) -> Float[Array, ""]:
    """Each pair against all others of the batch (InfoNCE)."""
    one, two = jax.vmap(net)(x), jax.vmap(net)(y)
    one, two = (v / jnp.linalg.norm(v, axis=1, keepdims=True) for v in (one, two))
    return -jnp.mean(jnp.diag(jax.nn.log_softmax(one @ two.T / 0.1)))


_TEXT = {"batch": 11, "time": 7}


def _text(net: Callable[[], Any]) -> Any:
    return lambda n: {
        "net": net(),
        "token": whole(n["batch"], n["time"], below=6),
        "target": whole(n["batch"], n["time"], below=6, seed=1),
    }


def _spectral(n: Any) -> dict[str, Any]:
    net, state = eqx.nn.make_with_state(Bounded)()
    return {
        "net": net,
        "state": state,
        "x": normal(n["batch"], 3),
        "y": normal(n["batch"], 1, seed=1),
    }


MODELS = tuple(
    Model(*parts, group="scripts", **options)
    for *parts, options in (
        (
            "language model, LSTM",
            language,
            _text(Language),
            _TEXT,
            "net",
            {"never": never("time", ("accumulate",), STATE)},
        ),
        (
            "vision transformer",
            vision,
            lambda n: {
                "net": VisionTransformer(),
                "image": normal(n["batch"], 1, 8, 8),
                "label": whole(n["batch"], below=5),
            },
            {"batch": 11},
            "net",
            {},
        ),
        (
            "masked language model",
            masked_language,
            _text(Masked),
            _TEXT,
            "net",
            {"never": never("time", CUTS, PAIRS)},
        ),
        (
            "MLP mixer",
            mixed,
            lambda n: {
                "net": Mixer(),
                "x": normal(n["batch"], 3, 4),
                "y": normal(n["batch"], 3, 4, seed=1),
            },
            {"batch": 11},
            "net",
            {},
        ),
        (
            "GAN",
            adversarial,
            lambda n: {"net": Adversaries(), "image": normal(n["batch"], 1, 8, 8), "key": KEY},
            {"batch": 11},
            "net",
            {},
        ),
        (
            "U-Net",
            segmented,
            lambda n: {
                "net": UNet(),
                "image": normal(n["batch"], 1, 8, 8),
                "mask": (normal(n["batch"], 1, 8, 8, seed=1) > 0).astype("f"),
            },
            {"batch": 11},
            "net",
            {},
        ),
        (
            "spectral norm",
            bounded,
            _spectral,
            {"batch": 11},
            "net",
            {"has_aux": True},
        ),
        (
            "contrastive loss",
            contrastive,
            lambda n: {
                "net": eqx.nn.MLP(3, 4, 8, 1, key=KEY),
                "x": normal(n["batch"], 3),
                "y": normal(n["batch"], 3, seed=1),
            },
            {"batch": 11},
            "net",
            {
                "never": never(
                    "batch",
                    CUTS,
                    "each example is compared with every other one: no chunk sees them, and what"
                    " would be carried grows with the axis",
                )
            },
        ),
    )
)
