"""In the style of packages for images and signals."""

import jax
import jax.numpy as jnp

from .case import Case, positive

IMAGE = positive(128, 128)


def blurred(image, kernel):
    rows = jax.vmap(lambda row: jnp.convolve(row, kernel, mode="same"))(image)
    return jax.vmap(
        lambda column: jnp.convolve(column, kernel, mode="same"), in_axes=1, out_axes=1
    )(rows)


def low_pass(image):
    spectrum = jnp.fft.rfft2(image)
    keep = (jnp.arange(128) < 16)[:, None] & (jnp.arange(65) < 16)
    return jnp.fft.irfft2(jnp.where(keep, spectrum, 0.0), image.shape)


def equalised(image):
    levels = jnp.clip((image * 64).astype(jnp.int32), 0, 255)
    counts = jnp.cumsum(jnp.bincount(levels.ravel(), length=256))
    return (counts / image.size)[levels]


def resized(image):
    return jax.image.resize(image, (96, 160), "bilinear")


def total_variation_step(image, noisy):
    def loss(image):
        return (
            jnp.sum((image - noisy) ** 2)
            + jnp.sum(jnp.abs(jnp.diff(image, axis=0)))
            + jnp.sum(jnp.abs(jnp.diff(image, axis=1)))
        )

    return image - 0.1 * jax.grad(loss)(image)


CASES = [
    Case("dm_pix", blurred, lambda: (IMAGE, positive(7) / 7)),
    Case("scipy.ndimage", low_pass, lambda: (IMAGE,)),
    Case("scikit-image", equalised, lambda: (IMAGE,)),
    Case("jax.image", resized, lambda: (IMAGE,)),
    Case("scikit-image", total_variation_step, lambda: (IMAGE, positive(128, 128, seed=1))),
]
