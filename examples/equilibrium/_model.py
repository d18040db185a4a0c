"""A model: groups of variables, a point that derives quantities from them, equations, and how shocks persist.

The equations become one function of flat vectors, `residual`, and its value and Jacobian blocks become one function more, `local`. Every
program of a model evaluates `local`, so the equations are traced once and differentiated once in a process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples.equilibrium._fail import ModelError, message
from examples.equilibrium._variables import Layout, Point, joined, members

Vector = Float[Array, "size"]
NAMES = ("tau", "u", "x", "z", "u_next", "x_next", "z_next")


class Place(NamedTuple):
    """Where equations are evaluated: parameters, and the variables of today and of tomorrow."""

    theta: Float[Array, "p"]
    free: Float[Array, "p slots"]
    tau: Float[Array, "slots"]
    u: Float[Array, "u"]
    x: Float[Array, "x"]
    z: Float[Array, "z"]
    u_next: Float[Array, "u"]
    x_next: Float[Array, "x"]
    z_next: Float[Array, "z"]


@dataclass(frozen=True, eq=False)
class Model:
    """Equations of a dynamic economy.

    Args:
        equations: From parameters, the point of today and that of tomorrow to residuals: a dict by name, or another pytree. An expectation of
            tomorrow is the equation at the point of tomorrow. `ahead` of a state is chosen today.
        point: The subclass of `Point` that derives quantities.
        controls: An example of the controls: its numbers are where the search for a steady state begins.
        states: The same for predetermined variables.
        shocks: The same for exogenous ones, z' = persistence z + e, which are zero in the steady state.
        persistence: From parameters to a group like `shocks`, with the coefficient of each.
        params: An example of the parameters, an Equinox module.
        slots: How many parameters a calibration may free at most.
        name: What messages call it.
    """

    equations: Callable[[Any, Any, Any], Any]
    controls: Any
    states: Any
    shocks: Any
    persistence: Callable[[Any], Any]
    params: Any
    point: type[Point] = Point
    slots: int = 1
    name: str = field(default="model")

    def __post_init__(self):
        names = [name for group in (self.controls, self.states, self.shocks) for name in members(group)]
        for name in {name for name in names if names.count(name) > 1 or hasattr(self.point, name)}:
            raise ModelError(
                message(
                    self.name, f"{name!r} stands for two things.", "Variables and derived quantities share one namespace.", "rename one."
                )
            )

    @cached_property
    def layouts(self) -> tuple[Layout, Layout, Layout]:
        """Of controls, states and shocks."""
        return Layout.of(self.controls), Layout.of(self.states), Layout.of(self.shocks)

    @cached_property
    def parameters(self) -> Layout:
        """The layout of the parameters."""
        return Layout.of(eqx.filter(self.params, lambda leaf: not isinstance(leaf, str | Callable)))

    def theta(self, params: Any) -> np.ndarray:
        """Parameters as one vector; they are data, so new ones are no new program."""
        return self.parameters.vector(params)

    def rho(self, theta: Vector) -> Float[Array, "z"]:
        """The persistence of each shock; traced."""
        layout = self.layouts[2]
        leaves = layout.treedef.flatten_up_to(self.persistence(self.parameters.traced(theta)))
        return joined([jnp.broadcast_to(leaf, shape) for leaf, shape in zip(leaves, layout.shapes, strict=True)])

    @cached_property
    def guess(self) -> tuple[np.ndarray, np.ndarray]:
        """Controls and states from which a steady state is searched."""
        return self.layouts[0].vector(self.controls), self.layouts[1].vector(self.states)

    @cached_property
    def equation_names(self) -> tuple[str, ...]:
        """A name for each residual."""
        with jax.enable_x64(True):
            shapes = jax.eval_shape(self._residuals, *self._example)
        return Layout.of(shapes).names

    @cached_property
    def _example(self) -> Place:
        numbers = jax.ShapeDtypeStruct
        p, (u, x, z) = self.parameters.size, (layout.size for layout in self.layouts)
        shapes = ((p,), (p, self.slots), (self.slots,), (u,), (x,), (z,), (u,), (x,), (z,))
        return Place(*(numbers(shape, np.float64) for shape in shapes))

    def _residuals(self, theta, free, tau, u, x, z, u_next, x_next, z_next) -> Any:  # noqa: ANN001
        params = self.parameters.traced(theta + free @ tau)
        controls, states, shocks = (layout.traced for layout in self.layouts)
        now = self.point(params, controls(u), states(x), shocks(z))
        ahead = self.point(params, controls(u_next), states(x_next), shocks(z_next))
        return self.equations(params, now, ahead)

    @cached_property
    def residual(self) -> Any:
        """All equations as one function of vectors, with its derivatives; see `jitney.lazy_derivatives`."""
        once = jax.jit(lambda *place: joined(jax.tree.leaves(self._residuals(*place))))

        @jitney.lazy_derivatives(wrt=NAMES, mode="forward")
        def residual(
            theta: Float[Array, "p"],
            free: Float[Array, "p slots"],
            tau: Float[Array, "slots"],
            u: Float[Array, "u"],
            x: Float[Array, "x"],
            z: Float[Array, "z"],
            u_next: Float[Array, "u"],
            x_next: Float[Array, "x"],
            z_next: Float[Array, "z"],
        ) -> Float[Array, "equation"]:
            return once(theta, free, tau, u, x, z, u_next, x_next, z_next)

        return residual

    @cached_property
    def local(self) -> Callable[..., tuple[Vector, dict[str, Array]]]:
        """Residuals and all Jacobian blocks by name, at one `Place`."""
        return jax.jit(lambda *place: self.residual.value_and_jacobian(*place))
