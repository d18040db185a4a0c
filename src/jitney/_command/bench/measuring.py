"""Cost of each size: seconds of compiling, seconds of warm calls, and bytes.

Sizes are compiled one by one, past the persistent cache. Then all are called warm in turn, so that
other load on the machine hits all sizes alike. The first size that does not fit into memory ends
the list: smaller ones are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..._diagnosis.jax_work import Watch, watch
from ..._interface.program import Program
from ..._jax.compile_cache import cache
from ..._jax.trees import tree_flatten
from ..._jax.xla.memory import free_bytes, text
from ..._measured.arguments import put
from ..._measured.measure import MOST, ColdCall, ways_of
from ..._measured.rounds import rounds
from ..._measured.verdict import quartiles
from ..._text.json import Data
from .inputs import Maker, fill_arguments

# Rounds of warm calls, even if they take longer than the given seconds.
_LEAST = 5
_FULL = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes that a program needs, as XLA plans it.

    Args:
        arguments: Bytes of arguments.
        outputs: Bytes of results.
        temporaries: Bytes of temporary buffers.
        shared: Bytes of results that alias donated arguments, which count once.
    """

    arguments: int
    outputs: int
    temporaries: int
    shared: int

    @property
    def total(self) -> int:
        """Bytes in all; aliased results count once."""
        return self.arguments + self.outputs + self.temporaries - self.shared


@dataclass(frozen=True)
class SizeRun:
    """Measurement of one size.

    Args:
        sizes: Size of each axis.
        trace_seconds: Seconds of tracing its programs.
        lower_seconds: Seconds of lowering them.
        compile_seconds: Seconds of compiling them.
        programs: Number of compiled programs; 0 if a smaller size's program is shared.
        seconds: Seconds of a warm call, round by round.
        memory: None if XLA does not report it.
    """

    sizes: Mapping[str, int]
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    programs: int
    seconds: tuple[float, ...]
    memory: ProgramMemory | None

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Quartiles of the seconds of a warm call."""
        return quartiles(self.seconds)

    @property
    def making(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        memory = None if self.memory is None else {**vars(self.memory), "total": self.memory.total}
        return {
            **vars(self),
            "sizes": dict(self.sizes),
            "seconds": list(self.seconds),
            "quartiles": list(self.quartiles),
            "memory": memory,
        }


@dataclass(frozen=True)
class Measurements:
    """Measurements of all sizes.

    Args:
        runs: One for each size, ascending.
        how: How the function was compiled, in words.
        stopped: Reason for leaving out larger sizes; empty if none were.
    """

    runs: tuple[SizeRun, ...]
    how: str
    stopped: str


@dataclass(frozen=True)
class _WarmSize:
    sizes: Mapping[str, int]
    side: ColdCall
    work: Sequence[Watch]
    memory: ProgramMemory | None


def measure_sizes(
    maker: Maker,
    wanted: Sequence[Mapping[str, int]],
    seconds: float,
) -> Measurements:
    """Compile and call each size.

    Args:
        maker: Factory of the arguments.
        wanted: The sizes, ascending.
        seconds: Time for the warm calls of all sizes, if that leaves enough rounds.
    """
    made: list[_WarmSize] = []
    how = stopped = ""
    for sizes in wanted:
        try:
            called, one = _compile_size(maker, sizes, made)
            how = how or called
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            if isinstance(error, jax.errors.JaxRuntimeError) and _FULL not in str(error):
                raise
            said = str(error).partition("\n")[0] or "no memory is left"
            stopped = (
                f"{' '.join(f'{axis}={size}' for axis, size in sizes.items())} does not fit: {said}"
            )
            break
        made.append(one)
    if not made:
        return Measurements((), how, stopped)

    # Each round times every size, so a column has the seconds of one size.
    columns = zip(
        *rounds(ways_of([each.side for each in made]), _LEAST, MOST, seconds), strict=True
    )
    return Measurements(
        tuple(_run(each, tuple(times)) for each, times in zip(made, columns, strict=True)),
        how,
        stopped,
    )


def _compile_size(
    maker: Maker,
    sizes: Mapping[str, int],
    before: Sequence[_WarmSize],
) -> tuple[str, _WarmSize]:
    """Compile one size, check its memory, and call it once."""
    bound = maker.abstract(sizes)
    f: Any

    # Sizes share one compiled function, so that padded sizes share programs.
    f, how = (before[0].side.f, "") if before else maker.target.callable_for(bound.arguments)

    # Check the bytes of the arguments while they are abstract, before anything is allocated.
    leaves = tree_flatten((bound.args, bound.kwargs))[0]
    _check(
        sum(
            leaf.size * leaf.dtype.itemsize
            for leaf in leaves
            if isinstance(leaf, jax.ShapeDtypeStruct)
        ),
        "its arguments take",
    )

    bound = fill_arguments(bound)
    given = put(bound.args, bound.kwargs, on_device=True)

    # Ahead-of-time compilation reports the memory before the first call can run out of it.
    with cache.pause_cache():
        with watch() as ahead:
            compiled = (
                f.ahead(given.args, given.kwargs)
                if isinstance(f, Program)
                else f.lower(*given.args, **given.kwargs).compile()
            )
        memory = _memory(compiled)
        if memory is not None:
            _check(memory.total - memory.arguments, "its results and temporaries take")
        side = ColdCall(f, maker.target.core.name, given)
    side.result = None
    return how, _WarmSize(sizes, side, (ahead, side.work), memory)


def _check(size: int, what: str) -> None:
    free = free_bytes()
    if size > free:
        raise MemoryError(f"{what} {text(size)}, of {text(free)} that may be taken")


def _memory(compiled: Any) -> ProgramMemory | None:
    # Equinox wraps JAX's compiled program in an object of its own.
    stats = getattr(compiled, "compiled", compiled).memory_analysis()
    if stats is None:
        return None
    return ProgramMemory(
        int(stats.argument_size_in_bytes),
        int(stats.output_size_in_bytes),
        int(stats.temp_size_in_bytes),
        int(stats.alias_size_in_bytes),
    )


def _run(made: _WarmSize, seconds: tuple[float, ...]) -> SizeRun:
    spent = {
        phase: sum(
            getattr(work, f"{phase}_seconds") for watched in made.work for work in watched.work
        )
        for phase in ("trace", "lower", "compile")
    }
    programs = sum(watched.compiles for watched in made.work)
    return SizeRun(
        made.sizes, spent["trace"], spent["lower"], spent["compile"], programs, seconds, made.memory
    )
