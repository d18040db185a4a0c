"""A function whose sizes are not fixed yet, and its traces at sizes that are known or symbols."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from jax import export

from ..._jax.debug_names import named_like
from ..._jax.typed import ClosedJaxpr
from ..._jax.user_contexts import FRESH
from ..dims import Dim
from ..interpreter import Ranges
from ..symbolic.scope import SCOPE, Proposal, Scope
from ..typed_jax import make_jaxpr

if TYPE_CHECKING:
    from .choices import Choices

Sizes = Mapping[str, Dim]
"""Symbol -> a size, symbolic or not."""
Avals = Callable[[Sizes], Sequence[object]]
"""The abstract arguments, from a size for each symbol."""


@dataclass(frozen=True)
class SizedFunction:
    """A function, and the sizes that it is to be traced for.

    Args:
        fn: Function of arrays that returns a sequence of arrays.
        avals: The abstract arguments, from a size for each symbol.
        ranges: Symbol -> the least and the largest size it stands for.
        choices: Store of the choices that depend on sampled sizes; None where none may be made.
        symbols: Symbol -> the symbolic dimension, where `fn` holds programs with these; None for
            new ones.
    """

    fn: Callable[..., object]
    avals: Avals
    ranges: Ranges
    choices: Choices | None = None
    symbols: Sizes | None = None
    # Seconds of each trace.
    spent: list[float] = field(
        default_factory=list[float],
        init=False,
        compare=False,
        repr=False,
    )
    # Known sizes -> the program. One proof asks for the size of its call up to three times.
    _traces: dict[tuple[int, ...], ClosedJaxpr] = field(
        default_factory=dict[tuple[int, ...], ClosedJaxpr],
        init=False,
        compare=False,
        repr=False,
    )

    def at(
        self,
        sizes: Sizes,
        rehearsed: list[Proposal] | None = None,
    ) -> ClosedJaxpr:
        """The program at these sizes, known or symbolic.

        Args:
            sizes: The size of each symbol.
            rehearsed: List that takes the proposals for choices, in a rehearsal.

        Raises:
            Exception: Any exception that the function raises.
        """
        began = perf_counter()
        try:
            with _scope(Scope(self.ranges, self.choices, rehearsed)):
                return make_jaxpr(_fresh_function(self.fn))(*self.avals(sizes))
        finally:
            self.spent.append(perf_counter() - began)

    def at_known(
        self,
        sizes: Mapping[str, int],
    ) -> ClosedJaxpr:
        """The program at known sizes, traced once for all that ask.

        Raises:
            Exception: Any exception that the function raises.
        """
        key = tuple(sizes.values())
        if key not in self._traces:
            self._traces[key] = self.at(sizes)
        return self._traces[key]

    def new_symbols(self) -> Sizes:
        """Return a JAX symbolic dimension for each symbol, constrained to its range; those that the
        function holds already, if it does.
        """
        if self.symbols is not None:
            return self.symbols
        bounds: list[str] = []
        for name, (low, high) in self.ranges.items():
            bounds += [f"{name} >= {low}", f"{name} <= {high}"]
        dims = export.symbolic_shape(", ".join(self.ranges), constraints=bounds)
        return dict(zip(self.ranges, dims, strict=True))

    @property
    def probes(self) -> list[dict[str, int]]:
        """Two sets of sizes from the ranges, or one if these are equal. Different symbols get
        different sizes if the ranges allow it.
        """
        low: dict[str, int] = {}
        high: dict[str, int] = {}
        for i, (name, (first, last)) in enumerate(self.ranges.items()):
            low[name] = min(first + i, last)
            high[name] = max(last - i, first)
        return [low] if low == high else [low, high]


@contextmanager
def _scope(scope: Scope) -> Generator[None]:
    """Context in which bodies are traced without JAX's trace cache, and no decision depends on a
    size.
    """
    token = SCOPE.set(scope)
    try:
        # JAX caches the traces of inner functions, and would not run their code. A new value of a
        # context that is part of its cache keys makes it miss.
        with FRESH(object()):
            yield
    finally:
        SCOPE.reset(token)


def _fresh_function(fn: Callable[..., object]) -> Callable[..., object]:
    """Wrap `fn` in a new function, since JAX may have cached a trace of `fn`."""

    def again(*arrays: object) -> object:
        return fn(*arrays)

    return named_like(again, fn)
