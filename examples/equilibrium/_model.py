"""A model: groups of variables, a point that derives quantities from them, equations, and how
shocks persist.

The equations are traced once in a process, and become one function of flat vectors that every
program of the model evaluates (`_local.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ._declared import check
from ._fail import ModelError, message
from ._given import called, few, real
from ._graph import reached
from ._local import Local, graph_of
from ._variables import Layout, Point, joined

Vector = Float[Array, "size"]
NAMES = ("theta", "u", "x", "z", "u_next", "x_next", "z_next")


@dataclass(frozen=True, eq=False)
class Persistence:
    """The coefficient of each shock. Programs hold this and `Local`, not the model with all that it
    has computed.
    """

    of: Callable[[Any], Any]
    parameters: Layout
    shocks: Layout
    where: str

    def __call__(self, theta: Vector) -> Float[Array, "z"] | Float[Array, "z z"]:
        """Those at parameters as a vector, or the matrix; traced."""
        given = self.of(self.parameters.traced(theta))
        if self.is_matrix(given):
            return real(self.where, "the matrix", given)
        return self.joined(self.shocks.treedef.flatten_up_to(given))

    def is_matrix(self, given: Any) -> bool:
        """Whether all shocks persist by one matrix.

        Raises:
            ModelError: It is a matrix of another shape.
        """
        if not isinstance(given, (jax.Array, np.ndarray)) or np.ndim(given) != 2:
            return False
        size = self.shocks.size
        if np.shape(given) != (size, size):
            raise ModelError(
                message(
                    self.where,
                    f"the matrix has shape {np.shape(given)}.",
                    f"It has a row and a column for each of {', '.join(self.shocks.names)}.",
                    f"return one of shape {(size, size)}, or a group of coefficients.",
                )
            )
        return True

    def joined(self, leaves: Any) -> Any:
        """One vector of what stands for each shock."""
        where, layout = self.where, self.shocks
        return joined(
            [
                layout.spread(where, i, real(where, layout.paths[i], leaf))
                for i, leaf in enumerate(leaves)
            ]
        )


@dataclass(frozen=True, eq=False)
class Model:
    """Equations of a dynamic economy.

    Args:
        equations: From parameters, the point of today and that of tomorrow to residuals: a dict by
            name, or another pytree. An expectation of tomorrow is the equation at the point of
            tomorrow. `ahead` of a state is chosen today.
        point: The subclass of `Point` that derives quantities.
        controls: An example of the controls: its numbers are where the search for a steady state
            begins.
        states: The same for predetermined variables.
        shocks: The same for exogenous ones, z' = persistence z + e, which are zero in the steady
            state.
        persistence: From parameters to a group like `shocks`, with the coefficient of each, or to
            a matrix, in the order of the names of the shocks (a dict's are sorted).
        params: An example of the parameters, an Equinox module.
        slots: How many parameters a calibration may free at most.
        rolled: Whether to look for structure in the equations; without it, and where there is none,
            Jacobians are dense.
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
    rolled: bool = True
    name: str = "model"

    def __post_init__(self):
        check(self)

    def __repr__(self) -> str:
        u, x, z = (few(layout.names) for layout in self.layouts)
        return f"{self.name}: controls {u}; states {x}; shocks {z}"

    @cached_property
    def layouts(self) -> tuple[Layout, Layout, Layout]:
        """Of controls, states and shocks."""
        return Layout.of(self.controls), Layout.of(self.states), Layout.of(self.shocks)

    @cached_property
    def parameters(self) -> Layout:
        """The layout of the parameters."""
        return Layout.of(self.params)

    def theta(self, params: Any) -> np.ndarray:
        """Parameters as one vector; they are data, so new ones are no new program."""
        theta = self.parameters.vector(params, f"{self.name}, parameters")
        _ = self._checked
        return theta

    @cached_property
    def rho(self) -> "Persistence":
        """The persistence of each shock, of parameters as a vector."""
        return Persistence(
            self.persistence, self.parameters, self.layouts[2], f"{self.name}, persistence"
        )

    @cached_property
    def guess(self) -> tuple[np.ndarray, np.ndarray]:
        """Controls and states from which a steady state is searched."""
        u, x, _ = self.layouts
        return u.vector(self.controls, f"{self.name}, controls"), x.vector(
            self.states, f"{self.name}, states"
        )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Elements of each group that equations read, in order."""
        groups = (self.parameters, *self.layouts, *self.layouts)
        return {name: layout.size for name, layout in zip(NAMES, groups, strict=True)}

    @cached_property
    def _checked(self) -> None:
        """Equations and persistence, called once before there is a program: what they raise is told
        here, and no program catches errors.
        """
        _, where = self._traced, f"{self.name}, persistence"

        def persistences(theta: Any) -> Any:
            given = self.persistence(self.parameters.traced(theta))
            if self.rho.is_matrix(given):
                return real(where, "the matrix", given)
            return self.rho.joined(self.layouts[2].leaves(given, where))

        with jax.enable_x64(True):
            called(
                where,
                "persistence",
                jax.eval_shape,
                persistences,
                jax.ShapeDtypeStruct((self.parameters.size,), np.float64),
            )

    @cached_property
    def _traced(self) -> tuple[Any, Layout]:
        """The equations as a jaxpr, and the layout of their residuals. This is where a model's
        equations are traced.
        """
        places = [jax.ShapeDtypeStruct((size,), np.float64) for size in self.sizes.values()]
        with jax.enable_x64(True):
            traced, shape = called(
                f"{self.name}, equations",
                "equations",
                jax.make_jaxpr(self._residuals, return_shape=True),
                *places,
            )
        residuals = Layout.of(shape)
        unknowns = self.sizes["u"] + self.sizes["x"]
        if residuals.size != unknowns:
            raise ModelError(
                message(
                    self.name,
                    f"there are {residuals.size} equations, and {unknowns} controls and states.",
                    "Each control and each state needs one equation; those of shocks are the"
                    " model's own.",
                    "add or drop equations.",
                )
            )
        return traced, residuals

    @cached_property
    def equation_names(self) -> tuple[str, ...]:
        """A name for each residual."""
        return self._traced[1].names

    @cached_property
    def graph(self) -> Any:
        """Equations and derivatives as a graph of numbers, if they are one; see `_graph`."""
        return graph_of(self._traced[0], list(self.sizes.values())) if self.rolled else None

    @cached_property
    def linear(self) -> bool:
        """Whether equations are linear in all variables, so that linear policies are exact; without
        a graph nobody knows.
        """
        if self.graph is None:
            return False
        (graph, _, partials), first = self.graph, self.sizes["theta"]
        slopes = [node for found in partials for column, node in found.items() if column >= first]
        return all(graph.nodes[i][0] != "in" or i < first for i in reached(graph.nodes, slopes))

    @cached_property
    def local(self) -> Local:
        """Residuals and all derivatives; what of them a program does not use is not in it."""
        return Local(self, NAMES)

    @cached_property
    def moving(self) -> Local:
        """Residuals and derivatives by what moves along a path."""
        return Local(self, ("u", "x", "u_next", "x_next"))

    @cached_property
    def values(self) -> Local:
        """Residuals alone."""
        return Local(self, ())

    def _residuals(
        self, theta: Any, u: Any, x: Any, z: Any, u_next: Any, x_next: Any, z_next: Any
    ) -> Any:
        params = self.parameters.traced(theta)
        controls, states, shocks = (layout.traced for layout in self.layouts)
        now = self.point(params, controls(u), states(x), shocks(z))
        ahead = self.point(params, controls(u_next), states(x_next), shocks(z_next))
        where = f"{self.name}, equations"
        residuals = self.equations(params, now, ahead)
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: real(where, jax.tree_util.keystr(path), leaf), residuals
        )

    @cached_property
    def residual(self) -> Any:
        """All equations as one function of vectors, with its derivatives, which are dense; see
        `jitney.lazy_derivatives`.
        """
        import jitney

        @jitney.lazy_derivatives(wrt=NAMES[1:])
        def residual(
            theta: Float[Array, "p"],
            u: Float[Array, "u"],
            x: Float[Array, "x"],
            z: Float[Array, "z"],
            u_next: Float[Array, "u"],
            x_next: Float[Array, "x"],
            z_next: Float[Array, "z"],
        ) -> Float[Array, "equation"]:
            return joined(jax.tree.leaves(self._residuals(theta, u, x, z, u_next, x_next, z_next)))

        return residual
