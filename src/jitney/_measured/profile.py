"""`jitney.profile`: what ran, on the host and on the devices, as a trace for a viewer and as a
table without one.

JAX's profiler records; calls of Programs are named meanwhile, and when it is done its file is read
for the figures.
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
from .._shown import Shown
from . import perfetto
from .annotations import CALLED, COMPILED, named_calls
from .profile_figures import Figures, OperationTime, ProgramTime, figures
from .trace_file import read

if TYPE_CHECKING:
    from rich.console import Group

P = ParamSpec("P")
R = TypeVar("R")
_jax: Any = jax
_SHOWN = 12  # rows of a table
_NOTHING = Figures((), (), ())


class Profile(Shown):
    """What ran while it was entered, the last time. Made by `jitney.profile`.

    Attributes:
        folder: Where the files of the last trace are, for XProf and Perfetto; None while there are
            none.
        perfetto: The file that https://ui.perfetto.dev opens; None while there is none.
        seconds: Of the block, by the clock on the wall.
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
        """By function: how often it was called and ran, and the seconds of it; what took longest
        first.
        """
        return self._figures.programs

    @property
    def scopes(self) -> tuple[OperationTime, ...]:
        """By stage, named axis, and `jax.named_scope` of the user's: what its operations took on
        the devices.
        """
        return self._figures.scopes

    @property
    def operations(self) -> tuple[OperationTime, ...]:
        """By operation: how often it ran, and what it took on the devices."""
        return self._figures.operations

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        rows: dict[str, Any] = {
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
        """A function whose calls are recorded; `fn.profile` is that of the last."""

        @functools.wraps(fn)
        def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fn(*args, **kwargs)

        profiled_: Any = profiled
        profiled_.profile = self
        return profiled_

    def _begin(self) -> None:
        _demand_writable(self._root)
        _wait()
        options = _jax.profiler.ProfileOptions()
        # a span for each call of a Python function would be most of what there is to see
        options.python_tracer_level = 0
        self._session = _session(self._root)
        options.session_id = self._session
        try:
            _jax.profiler.start_trace(self._root, profiler_options=options)
        except RuntimeError as error:
            raise OptionError(
                f"jitney.profile({str(self._root)!r})",
                f"JAX's profiler cannot start: {error}",
                "There is one profile at a time in a process, be it JAX's own or jitney's.",
                "end the one that is on before, or put both blocks into one.",
                code="J208",
            ) from error
        self._naming.enter_context(named_calls())
        self._began = time.perf_counter()

    def _end(self) -> None:
        _wait()
        self.seconds = time.perf_counter() - self._began
        self._naming.close()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            _jax.profiler.stop_trace()
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

        from .._console import figures as table

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
    """A name that no trace in the folder has: the time, and the number of the process where there
    are several.
    """
    process = f"_{_jax.process_index()}" if _jax.process_count() > 1 else ""
    name, number = time.strftime(f"%Y_%m_%d_%H_%M_%S{process}"), 1
    session = name
    while (root / "plugins" / "profile" / session).exists():
        number += 1
        session = f"{name}_{number}"
    return session


def _demand_writable(root: Path) -> None:
    """Now, and not when what was to be seen is over."""
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
    """Until what was dispatched is done, so far as anyone holds a result of it: what runs past an
    end of the block is recorded in part.
    """
    for array in _jax.live_arrays():
        # a computation that failed says so to whoever reads it; and some are deleted meanwhile
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
    https://ui.perfetto.dev. In both Programs, stages (`vmap batch`, `mask n`, `chunk n`, `pass 1`)
    and what is under `jax.named_scope` have their names. The block is over when the arrays are
    there that anyone holds, and what Programs returned last; what else is thrown away may be cut
    off. Compile before, if it is not the compiling that is to be seen. All threads are recorded.
    While no profile is on, a call costs nothing more.

    Args:
        folder: Where to write. It is made if it is not there.

    Raises:
        OptionError: The folder cannot be written, or JAX's profiler is on already.
    """
    try:
        path = Path(folder)  # a TypeError of bytes too
    except TypeError as error:
        raise OptionError(
            f"jitney.profile({folder!r})",
            f"a value of type {type(folder).__name__} is no folder.",
            "It says where the trace is written.",
            'write `jitney.profile("traces")`.',
            code="J208",
        ) from error
    return Profile(path)
