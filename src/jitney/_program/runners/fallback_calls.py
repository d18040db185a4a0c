"""Calls that XLA cannot compile, or that run out of memory, and are repeated another way:
`on_compile_error` and `on_memory_error`.

A call is repeated once. If that goes well, later calls of its key go the same way at once, so no
value changes from one call to the next. A call is not repeated if that could do anything twice, or
if its donated buffers are gone: then the error stays, with a note that says why.

A device may report that its memory is exhausted only when a result is waited for. So with
`on_memory_error` a call waits for its result.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.errors import JaxRuntimeError

from ... import _verify
from ..._diagnosis.exhausted import is_exhausted
from ..._errors import AxisError, ChunkWarning, EagerWarning
from ..._jax.typed import Array
from ..._jax.xla.memory import free_bytes, memory_usage
from ..._owners import users_level
from ..._signature.options import AUTO, Options
from ..._stages import Chunk
from ..._stages.chunking.cut import Cut
from ..._stages.stage import Fn
from ..._view.result import Mixed
from ..compiled_calls import CompiledCalls
from .whole_calls import WholeCalls
from .workers.worker_calls import call_key


@dataclass(frozen=True)
class Fallback:
    """Another way to run the calls of one key.

    Args:
        entry: The entry that runs them, in chunks; None to run them without Jit.
        why: The reason, for the plan.
        option: The option that asks for it.
    """

    entry: CompiledCalls | None
    why: str
    option: str


class FallbackCalls(WholeCalls):
    """Runs the calls of an entry, and repeats those that fail."""

    def __init__(self, entry: CompiledCalls):
        super().__init__(entry)
        self._taken: dict[Hashable, Fallback] = {}
        self._lock = threading.Lock()

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        if self._taken:
            taken = self.taken(arrays)
            if taken is not None:
                return self._run(taken, arrays)
        try:
            out = self.run_whole(arrays)
            if self.options.on_memory_error != "raise":
                _wait(out)
        except JaxRuntimeError as error:
            failed = error
        else:
            return out
        # Outside of `except`, so that an error of the other way does not carry this one as its
        # context.
        return self._repeat(failed, arrays)

    @property
    def options(self) -> Options:
        return self.entry.options

    def describe(self, arrays: Sequence[Array]) -> list[tuple[str, str]]:
        """Return lines of the plan of a call: a name, and how such calls run after an error."""
        taken = self.taken(arrays)
        if taken is not None:
            return [(f"{taken.option.split('_')[1]} errors", taken.why)]
        ways = {"eager": "run again un-jitted", "chunk": "run again in smaller chunks"}
        of = {
            "compile errors": (self.options.on_compile_error, "cannot be compiled"),
            "memory errors": (self.options.on_memory_error, "runs out of memory"),
        }
        return [
            (name, f"a call that {what} is {ways[way]}")
            for name, (way, what) in of.items()
            if way != "raise"
        ]

    def taken(self, arrays: Sequence[Array]) -> Fallback | None:
        """Return how calls with these arrays or abstract values run instead; None if none has
        failed.
        """
        return self._taken.get(call_key(arrays))

    def _run(self, fallback: Fallback, arrays: Sequence[Array]) -> object:
        if fallback.entry is not None:
            return self.run_entry(fallback.entry, arrays)
        if self.entry.is_tracing():
            # The failed program counts as an eager call, not as a miss.
            self.entry.core.counters.misses -= 1
        return self.entry.eagerly(*arrays)

    def _repeat(self, error: RuntimeError, arrays: Sequence[Array]) -> object:
        """Run a failed call another way, as the options say; else raise its error."""
        options, core = self.options, self.entry.core
        compiled = self._compiled(arrays)
        if is_exhausted(error) and options.on_memory_error != "raise":
            option, way = "on_memory_error", options.on_memory_error
        elif compiled is None and options.on_compile_error != "raise":
            option, way = "on_compile_error", options.on_compile_error
        else:
            raise error

        asked = f'`{option}="{way}"` asks'
        fallback = self._obstacle(compiled, arrays)
        if fallback is None and way == "chunk":
            fallback = self._in_chunks(compiled, arrays, asked)
        elif fallback is None:
            fallback = self._eagerly(error, option, asked)
        if isinstance(fallback, str):
            error.add_note(f"{core.where}: the call is not run again, as {asked}: {fallback}.")
            raise error

        try:
            out = self._run(fallback, arrays)
            if option == "on_memory_error":
                _wait(out)
        except JaxRuntimeError as again:
            how = "un-jitted" if fallback.entry is None else "in chunks"
            again.add_note(f"{core.where}: the call was run again {how}, and ended so.")
            raise
        with self._lock:
            self._taken[call_key(arrays)] = fallback
        return out

    def _compiled(self, arrays: Sequence[Array]) -> jax.stages.Compiled | None:
        """Return the program of a call; None if XLA cannot compile it.

        An error does not say whether the program ran. To compile it once more, which JAX remembers
        if it went well, does.
        """
        try:
            return self.entry.ahead(arrays)
        except JaxRuntimeError:
            return None

    def _obstacle(
        self,
        compiled: jax.stages.Compiled | None,
        arrays: Sequence[Array],
    ) -> str | None:
        """Return why a call cannot be repeated as if it had not been tried; None if it can."""
        if jax.process_count() > 1:
            return "each of several processes would decide for itself"
        entry = self.entry
        gone = [
            path
            for path, array in zip(entry.paths, arrays, strict=False)
            if isinstance(array, jax.Array) and array.is_deleted()
        ]
        if gone:
            return f"the donated buffers of {', '.join(map(repr, gone))} are gone"
        try:
            jax.block_until_ready(list(arrays))
        except JaxRuntimeError:
            return "an argument has no value, as what computes it has failed"
        # What was not compiled has done nothing.
        if compiled is None:
            return None
        return _verify.tells(entry.lower(arrays, "trace").jaxpr.effects)

    def _eagerly(
        self,
        error: RuntimeError,
        option: str,
        asked: str,
    ) -> Fallback:
        core = self.entry.core
        first_line = str(error).partition("\n")[0]
        what = "XLA cannot compile it" if option == "on_compile_error" else "it runs out of memory"
        warnings.warn(
            f"{core.where}: {what}: {first_line}\nCalls with arrays like these run un-jitted from"
            f" now on, as {asked}.{idle_options(self.options)}",
            EagerWarning,
            stacklevel=users_level(),
        )
        return Fallback(None, f"un-jitted: {what}: {first_line}", option)

    def _in_chunks(
        self,
        compiled: jax.stages.Compiled | None,
        arrays: Sequence[Array],
        asked: str,
    ) -> Fallback | str:
        """Return how a call runs in smaller chunks, or why it does not."""
        if any(len(array.devices()) > 1 for array in arrays if isinstance(array, jax.Array)):
            return "its arrays lie on several devices"
        core = self.entry.core
        try:
            cut = self._cut(arrays, compiled)
        except (AxisError, JaxRuntimeError) as error:
            return str(error).partition("\n")[0].rstrip(".")
        if isinstance(cut, str):
            return cut
        entry = self._entry_in_chunks(((cut.axis, cut.width),), None)
        at_a_time = f"{cut.width:,} of {cut.axis!r} at a time"
        warnings.warn(
            f"{core.where}: it runs out of memory with {cut.axis}={cut.size}.\nCalls with arrays"
            f" like these work on {at_a_time} from now on, as {asked}. Results are the same up to"
            " rounding.",
            ChunkWarning,
            stacklevel=users_level(),
        )
        return Fallback(entry, f"{at_a_time}, since a call ran out of memory", "on_memory_error")

    def _cut(self, arrays: Sequence[Array], compiled: jax.stages.Compiled | None) -> Cut | str:
        """Return the axis that is cut, and the width that takes less memory than the program; than
        one that was not compiled, the width that suits caches; or why
        there is nothing to cut.

        Raises:
            AxisError: No axis can be cut, or no chunk is small enough.
        """
        chunk = tuple((axis, AUTO) for axis, _ in self.options.chunk)
        entry = self._entry_in_chunks(chunk, _budget(compiled, arrays))
        with entry.numbers():
            planned = entry.plan_call(arrays)
            stage = planned.plan.of(Chunk)
            if stage is None:
                skipped = [stage.why for stage in planned.plan.stages if stage.name == "chunk"]
                return f"nothing can be cut: {'; '.join(skipped)}"
            body = entry.body_inside(planned.plan, Chunk)
            cut = self._suiting(stage, body) if compiled is None else stage.cut(body)
        if cut.passes is None:
            return (
                "chunks would not make it smaller: it has no temporaries besides its arguments and"
                " its result"
            )
        return cut

    def _suiting(self, stage: Chunk, body: Fn) -> Cut:
        """Return the first axis that can be cut, and a width, without compiling.

        Raises:
            AxisError: No axis can be cut.
        """
        failed: AxisError | None = None
        for each in (stage, *stage.others):
            try:
                passes = each.passes(body)
            except AxisError as error:
                failed = failed or error
                continue
            width = each.suiting(passes)
            given = dict(self.options.chunk).get(each.axis)
            if isinstance(given, int):
                width = max(1, min(width, given // 2))
            return Cut(each.axis, passes, width, size=each.size)
        raise failed or AssertionError("a stage is one of its own axes")

    def _entry_in_chunks(
        self,
        chunk: tuple[tuple[str, int | str], ...],
        memory: int | None,
    ) -> CompiledCalls:
        options = self.options.without("on_compile_error", "on_memory_error")
        return self.entry_with(replace(options, chunk=chunk, memory=memory))


def idle_options(options: Options) -> str:
    """Return, for the warning, the options that have no effect on a function that runs
    un-jitted.
    """
    names = [name for name in ("chunk", "memory", "pad", "donate") if getattr(options, name)]
    if options.shard is not None:
        names.append("shard")
    if not names:
        return ""
    listed = " and ".join(f"`{name}`" for name in names)
    return f" There is no program for {listed} to act on."


def _wait(out: object) -> None:
    jax.block_until_ready(out.arrays if isinstance(out, Mixed) else out)


def _budget(compiled: jax.stages.Compiled | None, arrays: Sequence[Array]) -> int:
    """Return the bytes that a program in chunks may take: the arguments, which are there, and half
    of the temporaries of the whole, or of what is free.
    """
    free = free_bytes()
    if compiled is None:
        arguments = [array.nbytes for array in arrays if isinstance(array, (jax.Array, np.ndarray))]
        return sum(arguments) + free // 2
    usage = memory_usage(compiled)
    return usage.arguments + min(usage.temporaries, free) // 2
