"""Runner and recorder of the user's program; `run` starts this file as a script in its own process.

    python launch.py REPORT MEMORY file|module TARGET ARGUMENT...

MEMORY is empty, or the budget of the process in bytes, with which its memory is sampled.

JAX and jitney are not imported before the program imports JAX: values that the program sets in
`os.environ` before its `import jax` count, as without jitney. The events are plain dicts, and
`jax_log.py` reads them when all is over: after the program's threads and its own `atexit`. An
error of the program passes through with none of this file's frames, and Python does the rest:
hooks, status, signals.

JAX reports in two public ways (0.10.0 to 0.12.0.1): spans of work through `jax.monitoring`, and
through `logging` the texts of `jax_explain_cache_misses` and of compiles. A filter takes those
texts, and none of them reaches a handler that it would not reach otherwise. `findings/lines.py`
records what the program's lines do with arrays.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._host.memory_samples import Peak, Sampler
    from .._text.json import Data


# Python 3.14 clears `__file__` of the main module before it shows an error.
_HERE = __file__
_ALONE = "_jitney_alone"
_EXPLAINED = "TRACING CACHE MISS"
_KEYED = "PERSISTENT COMPILATION CACHE MISS"
_KINDS = {
    _EXPLAINED: "explained",
    "Compiling ": "compiling",
    _KEYED: "keyed",
    "Persistent compilation cache hit": "keyed",
}
# Texts at the level of debugging, which JAX raises to warnings while it explains cache misses.
_LOUDER = (_KEYED, "Not writing ", "Writing ")
# jax 0.10.0 raises an error in its explanation of a loop or branch that it has traced before, and
# the program fails with it.
_EXPLAINS = (0, 10, 1)
_UNEXPLAINED = (
    "why JAX traced, with sizes and statics that vary: jax 0.10.0 can fail in its own explanation,"
    " which 0.10.1 mended"
)
# Ends of the names of JAX's loggers of these texts.
_LOGGERS = ("interpreters.pxla", "interpreters.partial_eval", ".compiler", ".compilation_cache")
# Folder of the standard library.
_LIBRARIES = os.path.dirname(os.__file__)  # noqa: PTH120 - compared with each frame
# Frames of a stack that are recorded, without JAX's.
_DEEP = 12


class Recording:
    """Events of a run, in the order of time, and facts about the program.

    Attributes:
        began: Start in seconds since 1970.
        import_seconds: Seconds of `import jax`; None while it is not imported.
        events: Plain dicts with `kind` and `thread`, see `jax_log.py`.
        seconds: Seconds from the start to the program's last line.
        kept: The first main module, which has to stay alive.
        decorated: Facts about jitney's functions in the program.
        own: Causes of their traces, with remedies.
        lines: Recorder of `findings/lines.py`.
        memory: Sampler of `_host/memory_samples.py`; None where memory is not watched.
        seen: Its record, when the program is over.
        unexplained: A sentence if JAX cannot explain traces here, else empty.
    """

    def __init__(self) -> None:
        self.began = time.time()
        self.import_seconds: float | None = None
        self.events: list[Data] = []
        self.seconds: float | None = None
        self.kept: ModuleType | None = None
        self.decorated: list[Data] = []
        self.own: list[Data] = []
        self.lines: Any = None
        self.memory: Sampler | None = None
        self.seen: list[Data] | None = None
        self.unexplained = ""
        # JAX's folder; empty while nothing is recorded.
        self._jax = ""
        # Value of `jax_explain_cache_misses` before; None until JAX is imported.
        self._explained: bool | None = None
        self._taken: list[_LogFilter] = []

    def listen(self) -> None:
        """Start recording; JAX has been imported."""
        import jax

        self._jax = os.path.dirname(jax.__file__) + os.sep  # noqa: PTH120 - compared with each frame
        jax.monitoring.register_event_time_span_listener(self._span)
        jax.monitoring.register_event_listener(self._event)
        config: Any = jax.config
        explained = self._explained = bool(config.jax_explain_cache_misses)
        for name in [
            name
            for name in logging.Logger.manager.loggerDict
            if name.startswith("jax.") and name.endswith(_LOGGERS)
        ]:
            logger = logging.getLogger(name)
            self._taken.append(_LogFilter(self, logger, explained=explained))
        if jax.__version_info__ < _EXPLAINS:
            self.unexplained = _UNEXPLAINED
        else:
            config.update("jax_explain_cache_misses", True)  # noqa: FBT003 - JAX's own
        self.lines = _import_alone("_command.findings.lines").watch_lines(jax)

    def stop(self) -> None:
        """Stop recording; the listeners stay registered, and do nothing."""
        self._jax = ""
        if self.lines is not None:
            self.lines.end()
        if self._explained is not None:
            config = sys.modules["jax"].config
            config.update("jax_explain_cache_misses", self._explained)
        for taken in self._taken:
            taken.restore()

    @contextlib.contextmanager
    def suspend(self) -> Generator[None]:
        """Record nothing in the body of the `with` statement."""
        jax, self._jax = self._jax, ""
        try:
            yield
        finally:
            self._jax = jax

    def _span(
        self,
        event: str,
        start_time: float,
        end_time: float,
        **told: object,
    ) -> None:
        if self._jax:
            self.add(
                kind="span",
                event=event,
                name=str(told.get("fun_name", "?")),
                start=start_time,
                end=end_time,
                frames=self._frames(),
                **self._memory_of(event, start_time, end_time),
            )

    def _memory_of(self, event: str, start: float, end: float) -> Data:
        """Return the bytes before a compile and the most in it; nothing of other spans."""
        if self.memory is None or not event.endswith("backend_compile_duration"):
            return {}
        # The backend has started. Before that, asking for devices would start it.
        devices = sys.modules["jax"].local_devices()
        self.memory.watch_devices({str(device): device.memory_stats for device in devices})
        return {"memory": self.memory.between(start, end)}

    def _event(self, event: str, **_: object) -> None:
        if event.endswith("/cache_hits"):
            self.add(kind="hit", event=event)

    def add(self, **event: object) -> None:
        """Append an event of the current thread."""
        if self._jax:
            self.events.append({**event, "thread": threading.get_ident()})

    def _frames(self) -> list[tuple[str, int, str, int]]:
        """Return file, line, function and its first line of each frame, innermost first.

        Frames of JAX and of this file are left out.
        """
        found: list[tuple[str, int, str, int]] = []
        frame = inspect.currentframe()
        while frame is not None and len(found) < _DEEP:
            code = frame.f_code
            if not code.co_filename.startswith(self._jax) and code.co_filename != _HERE:
                found.append((code.co_filename, frame.f_lineno, code.co_name, code.co_firstlineno))
            frame = frame.f_back
        return found


def _import_alone(name: str) -> Any:
    """Import a module of jitney without the package, whose `__init__.py` would import JAX.

    A package of another name, without that file, has the same folder: so relative imports work.
    """
    if _ALONE not in sys.modules:
        package = ModuleType(_ALONE)
        package.__path__ = [os.path.dirname(os.path.dirname(_HERE))]  # noqa: PTH120
        sys.modules[_ALONE] = package
    return importlib.import_module(f"{_ALONE}.{name}")


class _LogFilter(logging.Filter):
    """Filter of one logger: records the texts of JAX, and lets pass those that pass without it."""

    def __init__(
        self,
        recording: Recording,
        logger: logging.Logger,
        *,
        explained: bool,
    ):
        super().__init__()
        self._recording, self._logger, self._explained, self._level = (
            recording,
            logger,
            explained,
            logger.level,
        )
        logger.addFilter(self)
        # The lowest level, so that texts reach the filter which the logger would drop.
        logger.setLevel(logging.DEBUG)

    def restore(self) -> None:
        """Remove the filter, and restore the logger's level."""
        self._logger.removeFilter(self)
        self._logger.setLevel(self._level)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        for begins, kind in _KINDS.items():
            if text.startswith(begins):
                self._recording.add(kind=kind, text=text)

        # Would the text have been heard? Its level is that without explanations, and the threshold
        # is that of the parent: this logger's own is changed.
        above = self._logger.parent
        quiet = not self._explained
        level = logging.DEBUG if quiet and text.startswith(_LOUDER) else record.levelno
        heard = above is None or level >= above.getEffectiveLevel()
        return heard and not (quiet and text.startswith(_EXPLAINED))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Import hook that calls back once, when JAX has been imported."""

    def __init__(self, then: Callable[[float], None]):
        self._then = then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "jax":
            return None
        # With this finder gone, `find_spec` asks the usual ones for the real loader.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("jax")
        loader = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            # An attribute of the loader shadows its method for this one import.
            def executed(module: ModuleType) -> None:
                del loader.exec_module
                began = time.perf_counter()
                execute(module)
                self._then(time.perf_counter() - began)

            loader.exec_module = executed
        return spec


def record() -> Recording:
    """Return a recording that begins now, or as soon as JAX has been imported."""
    recording = Recording()
    if "jax" in sys.modules:
        recording.listen()
        return recording

    def imported(seconds: float) -> None:
        recording.import_seconds = seconds
        recording.listen()

    sys.meta_path.insert(0, _AfterImport(imported))
    return recording


def _is_library(file: str) -> bool:
    """Return whether a file is installed; `_owners.py` knows better, and imports JAX."""
    installed = "site-packages" in file or "dist-packages" in file
    return installed or file == _HERE or file.startswith(("<frozen", _LIBRARIES))


def _watch_memory(budget: int) -> Sampler:
    """Return a started sampler of the memory of this process."""

    def over(peak: Peak) -> None:
        # Now, and not in the report: a process that the kernel kills for its memory has none.
        users = (each for each in peak.frames if not _is_library(each[0]))
        file, line, function = next(users, ("a library", 0, "?"))
        sys.stderr.write(
            f"jitney: the process holds {peak.bytes / 2**20:,.0f} MiB, more than the budget of"
            f" {budget / 2**20:,.0f} MiB, at {file}:{line} ({function}).\n"
        )

    sampler: Sampler = _import_alone("_host.memory_samples").Sampler(budget, over)
    sampler.start()
    return sampler


def run(target: str, *, as_module: bool) -> bool:
    """Run a file, a folder with a `__main__.py`, or a module, as `__main__`; return False if there
    is no such program, which is written to stderr.

    `sys.argv` begins with the target already.
    """
    # Python's own rules: the first entry of `sys.path` is the folder of the script, or the current
    # one for `-m`, unless `-P` or `PYTHONSAFEPATH` is set.
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.realpath(target))  # noqa: PTH109, PTH120
    try:
        if as_module or os.path.isdir(target):  # noqa: PTH112
            spec = _module(target) if as_module else _folder(target)
            if spec is None:
                return False
            code = spec.loader.get_code(spec.name)
            sys.argv[0] = spec.origin if as_module else target
        else:
            file = os.path.abspath(target)  # noqa: PTH100 - as Python does, without following links
            spec, code = None, _code(file)

        # A fresh `__main__` with the attributes that Python would give it.
        main: Any = ModuleType("__main__")
        main.__file__ = code.co_filename if spec is None else spec.origin
        main.__spec__ = spec
        main.__package__ = None if spec is None else spec.parent
        main.__loader__ = (
            importlib.machinery.SourceFileLoader("__main__", code.co_filename)
            if spec is None
            else spec.loader
        )
        main.__builtins__ = sys.modules["builtins"]
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # noqa: S102 - the program that was asked for
    except SystemExit:
        raise
    except BaseException:
        _hide_launcher_frames()
        raise
    return True


def _hide_launcher_frames() -> None:
    """Wrap the hook that shows errors, so that it sees the program's frames only.

    The hook may be the program's own by now.
    """
    hook = sys.excepthook

    def shown(
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == _HERE:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


def _code(file: str) -> CodeType:
    with io.open_code(file) as opened:
        return compile(opened.read(), file, "exec", dont_inherit=True)


def _module(name: str) -> Any:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        spec = None
    if spec is None or spec.loader is None:
        _tell_missing(
            f"-m {name}", "there is no such module, or it is a package without a `__main__`"
        )
        return None
    return spec


def _folder(path: str) -> Any:
    path = os.path.abspath(path)  # noqa: PTH100 - as Python does
    sys.path[0] = path
    spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
    if spec is None or spec.loader is None:
        _tell_missing(path, "it is a folder without a `__main__.py`")
        return None
    return spec


def _tell_missing(target: str, what: str) -> None:
    sys.stderr.write(
        f"python -m jitney run {target}: {what}.\nWhat is run is a file, a folder with"
        " `__main__.py`, or -m and a module.\nFix: correct the name, or start where it is found.\n"
    )


def _run_recorded() -> None:
    """Run the program that the command line names, and have the report written at exit.

    The arguments are those of the usage in the docstring of this file.
    """
    report, memory, how, target, *arguments = sys.argv[1:]
    process, recording = os.getpid(), record()
    if memory:
        recording.memory = _watch_memory(int(memory))
    # The program's module replaces this one in `sys.modules`, but this one must outlive it.
    recording.kept = sys.modules["__main__"]
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(_HERE))))  # noqa: PTH100, PTH120

    def told() -> None:
        # A fork of the program runs the `atexit` callbacks too.
        if os.getpid() != process:
            return
        if "jax" in sys.modules:
            from jitney._command.run_report import write_report

            write_report(recording, target, report)
        else:
            sys.stderr.write(
                f"\njitney: {target} ran for {time.time() - recording.began:.2f} s and did not"
                " import jax.\n"
            )

    def looked() -> None:
        if os.getpid() == process:
            importlib.import_module("jitney._command.page.decorated").collect_facts(recording)

    atexit.register(told)
    sys.argv = [target, *arguments]
    try:
        if not run(target, as_module=how == "module"):
            # Nothing ran that could be reported.
            atexit.unregister(told)
            sys.exit(2)
    finally:
        recording.seconds = time.time() - recording.began
        if recording.memory is not None:
            # What is imported for the report is no memory of the program's.
            recording.memory.stop()
        # The modules of the report are imported now: once Python exits, those that prepare threads
        # cannot be imported any more.
        if "jax" in sys.modules:
            sys.path.append(above)
            decorates = "jitney._program.core" in sys.modules
            try:
                importlib.import_module("jitney._command.run_report").stop_watching(recording)
                if decorates:
                    importlib.import_module("jitney._command.page.decorated")
                    # `atexit` runs callbacks in reverse order: this one is first, while JAX works.
                    atexit.register(looked)
            # The exit of the user's program must not change.
            except ImportError as error:
                atexit.unregister(told)
                sys.stderr.write(f"\njitney: there is no report: {error}.\n")


if __name__ == "__main__":
    _run_recorded()
