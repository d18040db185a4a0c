"""The function of a derivative, its kind, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..._errors import Where
from ..._signature.binding import where_of
from ..._signature.policies import RematPolicy
from ..._sparsity import Mode

What = Literal[
    "grad",
    "value_and_grad",
    "jacobian",
    "value_and_jacobian",
    "hessian",
    "hessian_diag",
    "jvp",
    "vjp",
    "hvp",
    "linearize",
]


@dataclass(frozen=True)
class DerivativeOptions:
    """Options of a derivative.

    Args:
        fn: The function.
        what: Kind of derivative.
        wrt: Arguments to differentiate with respect to; None for all that hold floating-point
            arrays.
        skip: Arguments that None leaves out.
        single: True if the result is that of one argument, instead of a dict by name.
        mode: Mode of a Jacobian.
        sparse: True if Jacobians and Hessians are BCOO arrays.
        memory: Bytes that it may take, or "auto". A Jacobian takes as many directions at a time as
            fit; a gradient recomputes residuals.
        remat: Policy of `jax.checkpoint_policies` for the function, or "auto": save what fits into
            `memory`.
        aux: True if the function returns its number and something else, which is handed on:
            `((value, aux), grad)`, or `(grad, aux)`.
        summed: True if the function has to be a sum along the axis whose size is symbolic while
            this is traced.
        plain: True if JAX's own transformations compute it, dense.
        roll: "auto" if identical layers become a loop before the function is differentiated.
        positions: Arguments that are static for the structure of a sparse derivative.
        at_a_time: Directions of a dense Jacobian at a time; None for all, or what `memory` says.
        tried: Directions of a dense Jacobian that are computed, to time them; None for all.
    """

    fn: Callable[..., object]
    what: What
    wrt: tuple[str, ...] | None
    skip: tuple[str, ...] = ()
    single: bool = False
    mode: Mode = "auto"
    sparse: bool = False
    memory: int | str | None = None
    remat: str | RematPolicy | None = None
    aux: bool = False
    summed: bool = False
    plain: bool = False
    roll: str | None = None
    positions: tuple[str, ...] = ()
    at_a_time: int | None = None
    tried: int | None = None

    @property
    def where(self) -> Where:
        where = where_of(self.fn)
        return replace(where, name=f"{where.name}.{self.what}")
