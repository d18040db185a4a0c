"""What a user can get wrong in what the functions return: shapes, types, NumPy where JAX is needed.
Seen while a program is traced.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._curve import Residual
from ._fail import fail
from ._losses import rho_of
from ._problem import Data, Setup, residual_type


def check_shapes(setup: Setup, x: Float[Array, "k"], data: Data) -> None:
    """Residuals in one dimension and enough of them; Jacobian, mask and loss to match."""
    fun, k = "model" if isinstance(setup.fun, Residual) else "fun", x.shape[0]
    with _traceable(fun):
        f = residual_type(setup, x, data)
    if len(f.shape) != 1:
        fail(
            f"`{fun}` returns shape {f.shape}.",
            "Residuals have one axis.",
            "return residuals.ravel().",
        )
    if not jnp.issubdtype(f.dtype, jnp.floating):
        fail(
            f"`{fun}` returns {f.dtype}.",
            "Residuals are real numbers.",
            "return real floats; stack the real and imaginary parts of complex ones.",
            TypeError,
        )
    if f.shape[0] < k:
        fail(
            f"There are {f.shape[0]} points for {k} parameters.",
            "A fit needs at least as many points as parameters.",
            "add points or hold parameters fixed.",
        )
    if data.mask is not None and data.mask.shape != f.shape:
        fail(
            f"`mask` has shape {data.mask.shape} and the residuals have {f.shape}.",
            "The mask has one entry per residual.",
            "make the shapes agree.",
        )
    rho = rho_of(setup.loss)
    if rho is not None:
        with _traceable("loss"):
            jax.eval_shape(rho, jax.ShapeDtypeStruct(f.shape, x.dtype))
    if setup.jac is not None:
        _check_jacobian(setup, x, data, (f.shape[0], k))


def _check_jacobian(setup: Setup, x: Float[Array, "k"], data: Data, shape: tuple[int, int]) -> None:
    with _traceable("jac"):
        J = eqx.filter_eval_shape(
            lambda x, data: jnp.asarray(setup.jac(x, *data.args, **data.kwargs)), x, data
        )
    if J.shape != shape:
        fail(
            f"`jac` returns shape {J.shape}.",
            f"It is (points, parameters) = {shape}.",
            "return df_i / dx_j in row i and column j.",
        )


@contextmanager
def _traceable(name: str) -> Iterator[None]:
    """Say it plainly where a function hands what is traced to NumPy."""
    try:
        yield
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(
            f"`{name}` calls NumPy with a value that is known only when the program runs.\n`fun`,"
            " `model`, `jac` and `loss` are compiled: what depends on the parameters is computed"
            " by JAX.\nFix: write it with jax.numpy instead of numpy; arrays that are fixed may"
            " stay NumPy's."
        ) from error
