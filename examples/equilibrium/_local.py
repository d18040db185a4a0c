"""Residuals and Jacobian of a model as one vector of entries: what every program of the model
evaluates.

The entries are the residuals and all derivatives that are not known to be zero; `index` says where
in the vector each element of a Jacobian block stands. Equations that are made of operations on
numbers become a rolled graph. Others go through `jitney`'s dense `value_and_jacobian`, and their
entries are all elements of all blocks.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._graph import Graph, NotScalar, Partials, read
from ._rolled import Rolled

Inputs = Float[Array, "inputs periods"]
Entries = Float[Array, "entries periods"]


class Local:
    """Entries at places, a column each, for derivatives by some of the groups.

    Args:
        model: The model.
        names: The groups, of `_model.NAMES`; of none of them entries are residuals alone.
    """

    def __init__(self, model: Any, names: tuple[str, ...]):
        self.names, self.rows, self.sizes = names, len(model.equation_names), model.sizes
        if model.graph is None:
            self._dense(model)
        else:
            self._rolled(*model.graph)

    def _rolled(self, graph: Graph, outputs: list[int], partials: list[Partials]) -> None:
        starts = dict(zip(self.sizes, np.cumsum([0, *self.sizes.values()]).tolist(), strict=False))
        zero = graph.const(0.0)
        nodes = {name: np.full((self.rows, self.sizes[name]), zero) for name in self.names}
        for name, block in nodes.items():
            for row, found in enumerate(partials):
                for column, node in found.items():
                    if 0 <= column - starts[name] < self.sizes[name]:
                        block[row, column - starts[name]] = node
        none = np.zeros(0, int)
        wanted = np.unique(np.concatenate([none, *(block.ravel() for block in nodes.values())]))
        self.index = {
            name: self.rows + np.searchsorted(wanted, block) for name, block in nodes.items()
        }
        self.zero: int | None = self.rows + int(np.searchsorted(wanted, zero))
        self.entries = Rolled(graph.nodes, [*outputs, *wanted.tolist()])

    def _dense(self, model: Any) -> None:
        sizes = [self.sizes[name] for name in self.names]
        starts = self.rows + self.rows * np.cumsum([0, *sizes])
        self.index = {
            name: start + np.arange(self.rows * size).reshape(self.rows, size)
            for name, size, start in zip(self.names, sizes, starts, strict=False)
        }
        self.zero = None
        cuts = np.cumsum(list(self.sizes.values()))[:-1]

        def one(column: Float[Array, "inputs"]) -> Float[Array, "entries"]:
            if not self.names:
                return model.residual(*jnp.split(column, cuts))
            residual, blocks = model.residual.value_and_jacobian(
                *jnp.split(column, cuts), wrt=self.names
            )
            return jnp.concatenate([residual, *(blocks[name].ravel() for name in self.names)])

        self.entries = jax.vmap(one, 1, 1)

    def read(self, names: tuple[str, ...]) -> Any:
        """Where the elements of blocks side by side stand."""
        return np.concatenate([self.index[name] for name in names], 1)

    def blocks(self, entries: np.ndarray) -> dict[str, np.ndarray]:
        """Jacobian blocks by name, on the host."""
        return {name: entries[..., index] for name, index in self.index.items()}

    def columns(self, name: str) -> np.ndarray:
        """The columns of a block that are not known to be zero."""
        block = self.index[name]
        return (
            np.arange(block.shape[1])
            if self.zero is None
            else np.flatnonzero(np.any(block != self.zero, 0))
        )


def graph_of(traced: Any, sizes: list[int]) -> tuple[Graph, list[int], list[Partials]] | None:
    """The equations and their derivatives as a graph, or nothing if they do not fit into one."""
    graph = Graph()
    inputs = [
        np.array([graph.node("in", len(graph.nodes)) for _ in range(size)], int) for size in sizes
    ]
    try:
        found = read(graph, traced.jaxpr, traced.consts, inputs)
    except NotScalar:
        return None
    outputs = [int(i) for ids in found for i in ids.ravel()]
    return graph, outputs, graph.partials(outputs, sum(sizes))
