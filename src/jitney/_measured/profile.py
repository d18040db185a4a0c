"""`jitney.profile`: a trace of what ran on host and devices, for a viewer, and a table of seconds.

JAX's profiler records while `annotations.py` names the calls of Programs. At the end of the block
the file is read for the figures.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import jax

from .._errors import OptionError
from .._owners import public
from .._public import public_in
from .._text.json import Data
from .._text.shown import Shown
from . import perfetto
from .annotations import CALLED, COMPILED, named_calls
from .profile_figures import Figures, OperationTime, ProgramTime, figures
from .trace_file import read

if TYPE_CHECKING:
    from rich.console import Group

P = ParamSpec("P")
R = TypeVar("R")
# Rows of a table.
_SHOWN = 12
_NOTHING = Figures((), (), ())


@public_in("jitney.types")
class Profile(Shown):
    """Recording of what ran in the last block; made by `jitney.profile`.

    Attributes:
        folder: Folder of the files of the last trace, for XProf and Perfetto; None before the
            first.
        perfetto: File for https://ui.perfetto.dev; None before the first trace.
        seconds: Wall-clock seconds of the block.
    """

    def __init__(self, folder: Path):
        self._root = folder
        self._lock = threading.RLock()
        self._entered = 0
        self._naming = ExitStack()
        self._began = 0.0
        self._session = ""
        self._figures = _NOTHING
        self.folder: Path | None = None
        self.perfetto: Path | None = None
        self.seconds = 0.0

    @property
    def programs(self) -> tuple[ProgramTime, ...]:
        """Calls, runs and seconds by function, longest first."""
        return self._figures.programs

    @property
    def scopes(self) -> tuple[OperationTime, ...]:
        """Seconds on the devices by stage, named axis, and the user's `jax.named_scope`."""
        return self._figures.scopes

    @property
    def operations(self) -> tuple[OperationTime, ...]:
        """Runs and seconds on the devices by operation."""
        return self._figures.operations

    def to_dict(self) -> Data:
        """Return the figures as plain data, for JSON."""
        rows = {
            name: [vars(row) for row in getattr(self, name)]
            for name in ("programs", "scopes", "operations")
        }
        return {"folder": self.folder and str(self.folder), "seconds": self.seconds, **rows}

    @public
    def __enter__(self) -> Self:
        with self._lock:
            if not self._entered:
                self._begin()
            self._entered += 1
        return self

    @public
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._end()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return a function whose calls are recorded; its attribute `profile` has the last call."""

        @functools.wraps(fn)
        def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fn(*args, **kwargs)

        profiled_: Any = profiled
        profiled_.profile = self
        return profiled_

    def _begin(self) -> None:
        _demand_writable(self._root)
        # Work that was dispatched before the block is not part of it.
        _wait()
        options = jax.profiler.ProfileOptions()
        # Without it the trace would consist mostly of spans of Python calls.
        options.python_tracer_level = 0
        self._session = _session(self._root)
        options.session_id = self._session
        try:
            jax.profiler.start_trace(self._root, profiler_options=options)
        except RuntimeError as error:
            raise OptionError(
                f"jitney.profile({str(self._root)!r})",
                f"JAX's profiler cannot start: {error}",
                "There is one profile at a time in a process, be it JAX's own or jitney's.",
                "end the one that is on before, or put both blocks into one.",
                code="J208",
            ) from error

        # Last, when the profiler has started: with an error above no method stays patched.
        self._naming.enter_context(named_calls())
        self._began = time.perf_counter()

    def _end(self) -> None:
        _wait()
        self.seconds = time.perf_counter() - self._began
        self._naming.close()
        try:
            # The block may have deleted the folder.
            self._root.mkdir(parents=True, exist_ok=True)
            jax.profiler.stop_trace()
        except (RuntimeError, OSError) as error:
            raise OptionError(
                f"jitney.profile({str(self._root)!r})",
                f"JAX's profiler has not written a trace: {error}",
                "It is one for the whole process, and writes when the block ends.",
                "leave `jax.profiler.stop_trace` and the folder alone inside the block, and see"
                " that the disk is not full.",
                code="J208",
            ) from error

        self.folder = self._root / "plugins" / "profile" / self._session
        (file,) = self.folder.glob("*.xplane.pb")
        recorded = read(file, (CALLED, COMPILED))
        self.perfetto = self.folder / "perfetto_trace.json.gz"
        perfetto.write(recorded, next(self.folder.glob("*.trace.json.gz")), self.perfetto)
        self._figures = figures(recorded)

    def __rich__(self) -> Group | str:
        from rich.console import Group

        from .._text.console import figures as table

        if self.folder is None:
            return "profile: nothing is recorded yet"
        title = f"profile of {self.seconds:.3f} s"
        if not self._figures.programs:
            return (
                f"{title}: nothing ran, neither a Program nor another compiled function; the trace"
                f" is in {self.folder}"
            )
        whole = sum(each.seconds for each in self.operations) or 1.0
        programs = [
            ("program", "where", "calls", "runs", "host s", "compile s", "device s"),
            *map(_program_row, self.programs[:_SHOWN]),
        ]
        scopes = [
            ("program", "scope", "ops", "device s", "share"),
            *(_scope_row(each, whole) for each in self.scopes[:_SHOWN]),
        ]
        operations = [
            ("operation", "where", "ops", "device s", "share"),
            *(_row(each, whole) for each in self.operations[:_SHOWN]),
        ]
        return Group(
            table(title, programs),
            "",
            table("by scope", scopes),
            "",
            table("by operation", operations),
            "",
            f"in {self.folder}",
        )


def _program_row(each: ProgramTime) -> tuple[str, ...]:
    calls = "-" if each.calls is None else f"{each.calls}"
    host = (
        ("-", "-")
        if each.calls is None
        else (f"{each.host_seconds:.6f}", f"{each.compile_seconds:.3f}")
    )
    return each.name, each.place, calls, f"{each.runs}", *host, f"{each.device_seconds:.6f}"


def _scope_row(each: OperationTime, whole: float) -> tuple[str, ...]:
    return (
        each.program,
        each.scope or "in none",
        f"{each.times}",
        f"{each.seconds:.6f}",
        f"{each.seconds / whole:.1%}",
    )


def _row(each: OperationTime, whole: float) -> tuple[str, ...]:
    where = ", ".join(filter(None, (each.program, each.scope, each.place)))
    return each.name, where, f"{each.times}", f"{each.seconds:.6f}", f"{each.seconds / whole:.1%}"


def _session(root: Path) -> str:
    """Return a name for a new trace: the time, and the process index if there are several."""
    process = f"_{jax.process_index()}" if jax.process_count() > 1 else ""
    name, number = time.strftime(f"%Y_%m_%d_%H_%M_%S{process}"), 1
    session = name
    while (root / "plugins" / "profile" / session).exists():
        number += 1
        session = f"{name}_{number}"
    return session


def _demand_writable(root: Path) -> None:
    """Raise an error now if the folder cannot be written, and not at the end of the block."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise OptionError(
            f"jitney.profile({str(root)!r})",
            f"the folder cannot be written: {error}.",
            "The trace is written there when the block ends.",
            "name a folder that you may write.",
            code="J208",
        ) from error


def _wait() -> None:
    """Wait for all live arrays.

    Computations that run past an end of the block would be recorded in part.
    """
    for array in jax.live_arrays():
        # A failed computation raises its error at whoever reads it, and arrays may be deleted
        # meanwhile.
        with suppress(RuntimeError):
            array.block_until_ready()


@public
def profile(folder: str | os.PathLike[str]) -> Profile:
    """Record what runs, on the host and on the devices: a context manager, and a decorator.

    ```python
    with jitney.profile("traces") as p:
        step(state, batch)
    print(p)  # by program, by stage and named axis, and by operation
    ```

    The trace is in `traces/plugins/profile/`, as XProf and TensorBoard read it; `p.perfetto` is for
    https://ui.perfetto.dev. In both, Programs, stages (`vmap batch`, `mask n`, `chunk n`, `pass 1`)
    and operations under `jax.named_scope` have their names. The block ends when all live arrays and
    the last results of Programs are computed; other results that the block discards may be cut off.
    Compile before, unless the trace is to show the compiling. All threads are recorded. Without a
    profile a call costs nothing more.

    Args:
        folder: Folder to write to, which is created if it is missing.

    Raises:
        OptionError: The folder cannot be written, or JAX's profiler is on already.
    """
    try:
        # Bytes raise a TypeError too.
        path = Path(folder)
    except TypeError as error:
        raise OptionError(
            f"jitney.profile({folder!r})",
            f"a value of type {type(folder).__name__} is not a folder.",
            "It says where the trace is written.",
            'write `jitney.profile("traces")`.',
            code="J208",
        ) from error
    return Profile(path)
