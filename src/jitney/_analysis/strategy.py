"""`jitney.strategy`: compare evaluation in memory, in chunks, and streamed, for given sizes and
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._errors import AxisError, ContractError
from .._interface.derivatives import Derivative, program_called
from .._jax.memory import Fit, Misfit, budget_of, fit, text
from .._owners import public
from .._report.strategy import Strategy, Way
from .._signature.options import AUTO
from .._stages import Chunk
from .._stages.chunk import SYMBOL, in_chunks
from .._stages.plan import Plan
from .._stream.steps import longest_chunk_steps
from .._stream.stream_layout import StreamLayout

if TYPE_CHECKING:
    from .._interface.program import Program

IN_MEMORY, CHUNKED, STREAMED = "in memory", "chunked", "streamed"


@public
def strategy(
    program: Program[..., Any] | Derivative[..., Any],
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
    entry, arrays = program_called("jitney.strategy()", program, named).abstract(
        examples, named, sizes
    )
    where = entry.core.where
    budget = budget_of(where, memory)
    with entry.numbers(), entry.scope():
        planned = entry.planned(arrays)
        view, asked = (
            planned.view,
            replace(entry.on_mesh(), nested=False, outer=planned.plan.stages),
        )
        stage = Chunk.any(view, asked)
        if stage is None:
            raise ContractError(
                where,
                "no array has an axis with a name.",
                "Data are cut along an axis that annotations name.",
                'annotate the arrays: x: Float[Array, "points"].',
                code="J216",
            )

        # The body below the chunks, with no padding or chunks of its own.
        request = replace(asked, options=replace(entry.core.options, pad=(), chunk=(), memory=None))
        body = entry.body_inside(Plan.make(view, request), Chunk)
        avals = stage.avals({SYMBOL: stage.size})
        whole = stage.bytes(body, avals)
        # In the order of preference.
        ways = [
            Way(IN_MEMORY, whole, None, f"{text(whole)} by the compiler", whole <= budget),
            _chunked(stage, body, avals, budget),
            _way(
                STREAMED,
                lambda: longest_chunk_steps(entry, stage, StreamLayout.of(entry, stage), budget)[1],
            ),
        ]
    return Strategy(str(where), stage.axis, stage.size, budget, tuple(ways))


def _chunked(stage: Chunk, body: Any, avals: Any, budget: int) -> Way:
    def measured() -> Fit:
        passes = stage.passes(body)
        return fit(
            lambda width: stage.bytes(in_chunks(stage, passes, width), avals),
            stage.suiting(passes),
            budget,
        )

    return _way(CHUNKED, measured)


def _way(name: str, measured: Any) -> Way:
    try:
        chunks: Fit = measured()
    except Misfit as misfit:
        return Way(
            name, misfit.least, None, f"{text(misfit.least)} at least, by the compiler", fits=False
        )
    except AxisError as error:
        return Way(name, None, None, str(error).partition("\n")[0], fits=False)
    return Way(
        name, chunks.measured, chunks.width, f"{chunks.width:,} at a time: {chunks}", fits=True
    )
