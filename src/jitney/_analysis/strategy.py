"""`jitney.analysis.strategy`: compare evaluation in memory, in chunks, and streamed, for given
sizes and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax

from .._errors import AxisError, ContractError
from .._interface.derivatives.derivative import Derivative, program_of_call
from .._jax.xla.memory import Fit, Misfit, budget_of, fit, text
from .._owners import public
from .._report.comparisons import Strategy, Way
from .._signature.options import AUTO
from .._stages import Chunk
from .._stages.chunking.chunk import in_chunks
from .._stages.chunking.chunked_axis import SYMBOL
from .._stages.plan import Plan
from .._stages.stage import Fn
from .._stream.steps import suiting_steps
from .._stream.stream_layout import StreamLayout

if TYPE_CHECKING:
    from .._interface.program import Program

IN_MEMORY, CHUNKED, STREAMED = "in memory", "chunked", "streamed"


@public
def strategy(
    program: Program[..., object] | Derivative[..., object],
    /,
    *examples: object,
    sizes: Mapping[str, int] | None = None,
    memory: int | str = AUTO,
    **named: object,
) -> Strategy:
    """Find out which evaluation of data of given sizes fits into a given memory: all at once, in
    chunks (`chunk=`), or streamed (`jitney.stream`). Nothing is run: each is compiled for abstract
    values, the last two at several chunk lengths.

    Args:
        program: A function under `@optimize`, or a derivative of one, such as `f.grad`.
        examples: As for `Program.compile`: examples of the leading arguments.
        sizes: Axis name -> size; the longest axis is cut.
        memory: Bytes, a text such as `"2GiB"`, or `"auto"` for the free memory.
        named: Examples by name; for a derivative also `wrt`.

    For a function with `shard`, memory is that of one device.

    Returns:
        The three evaluations, in the order of preference, each with the bytes of temporaries and
        arguments by the compiler. Results are not counted. Printed, a table.

    Raises:
        ContractError: A size is missing or unknown, or no array has an axis with a name.
        MeshError: The function has `shard`, and there is no mesh, or an axis does not divide.
        OptionError: `memory` is not a size.
    """
    called = program_of_call("jitney.analysis.strategy()", program, named)
    entry, arrays = called.abstract(examples, named, sizes)
    where = entry.core.where
    budget = budget_of(where, memory)
    with entry.numbers(), entry.scope():
        planned = entry.plan_call(arrays)
        view = planned.view
        on_mesh = replace(entry.on_mesh(), nested=False, outer=planned.plan.stages)
        stage = Chunk.plan_longest(view, on_mesh)
        if stage is None:
            raise ContractError(
                where,
                "no array has an axis with a name.",
                "Data are cut along an axis that annotations name.",
                'annotate the arrays: x: Float[Array, "points"].',
                code="J216",
            )

        # The body below the chunks, with no padding or chunks of its own.
        options = entry.core.options.without("pad", "chunk", "memory")
        request = replace(on_mesh, options=options)
        body = entry.body_inside(Plan.make(view, request), Chunk)
        avals = stage.avals({SYMBOL: stage.size})
        whole = stage.bytes(body, avals)

        def streamed() -> Fit | Misfit:
            layout = StreamLayout.of(entry, stage)
            suiting = suiting_steps(entry, stage, layout, budget)
            return suiting if isinstance(suiting, Misfit) else suiting[1]

        # In the order of preference.
        ways = [
            Way(
                IN_MEMORY,
                whole,
                None,
                f"{text(whole)} by the compiler",
                whole <= budget,
            ),
            _chunked_way(stage, body, avals, budget),
            _way(STREAMED, streamed),
        ]
    return Strategy(str(where), stage.axis, stage.size, budget, tuple(ways))


def _chunked_way(
    stage: Chunk,
    body: Fn,
    avals: Sequence[jax.ShapeDtypeStruct],
    budget: int,
) -> Way:
    def longest() -> Fit | Misfit:
        passes = stage.passes(body)

        def measure(width: int) -> int:
            return stage.bytes(in_chunks(stage, passes, width), avals)

        return fit(measure, stage.suiting(passes), budget)

    return _way(CHUNKED, longest)


def _way(name: str, longest: Callable[[], Fit | Misfit]) -> Way:
    try:
        chunks = longest()
    except AxisError as error:
        reason = str(error).partition("\n")[0]
        return Way(name, None, None, reason, fits=False)
    if isinstance(chunks, Misfit):
        return Way(
            name,
            chunks.least,
            None,
            f"{text(chunks.least)} at least, by the compiler",
            fits=False,
        )
    return Way(
        name,
        chunks.measured,
        chunks.width,
        f"{chunks.width:,} at a time: {chunks}",
        fits=True,
    )
