"""A body that has been traced, as a function: its programs stand for it, and its Python does not
run again.

The derivative of a padded body is traced from these programs, with symbols and at the size of the
call, as JAX differentiates what `jax.jit` has traced:

    body         S with symbols, E at the size of the call: the witness has compared the two
    derivative   jvp(S) and jvp(E), compared likewise: rules of derivatives run in both

A body whose Python computes numbers from its size, or is looked at by code, is none: it has to be
traced at each size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from jax.extend import core

from ..._jax.typed import ClosedJaxpr
from ..dims import Dim, is_symbolic
from ..refusal import Refused


@dataclass(frozen=True)
class TracedBody:
    """The programs of a body.

    Args:
        symbols: Symbol -> the symbolic dimension in the first program. One of another trace is
            another dimension, even under the same name.
        symbolic: The program with these.
        exact: The program at the size of a call.
    """

    symbols: Mapping[str, Dim]
    symbolic: ClosedJaxpr
    exact: ClosedJaxpr

    def __call__(self, *arrays: jax.Array) -> list[jax.Array]:
        """Evaluate the program of these sizes.

        Raises:
            Refused: There is none.
        """
        shapes = [x.shape for x in arrays]
        has_symbols = any(is_symbolic(size) for shape in shapes for size in shape)
        program = self.symbolic if has_symbols else self.exact
        if not has_symbols and shapes != [aval.shape for aval in program.in_avals]:
            raise Refused("", "has been traced at another size")
        return list(core.jaxpr_as_fun(program)(*arrays))
