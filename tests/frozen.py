"""What a change that is to change nothing has changed: `python -m tests.frozen COMMIT`.

Plans, programs, statistics, warnings and errors of programs of the hunt, of the four ports, and of
the models of `tests/perf/coverage` are recorded under the source of the commit and under the source
as it is, and compared. The programs are those of the commit on both sides: what is drawn, fitted or
modelled today is another program. `--words FILE` is a table of words, old and new, a line each with
a tab between, for a change of words. `--decisions` compares what each stage takes, counts, causes
of traces, codes and classes, and leaves out words and jaxprs.

A record takes about 300 s of processor time, a third of it in the proofs and traces of the models
with differential equations. So each line is written as soon as known, in a folder for temporary
files under the hash of the tree: a run that is cut off goes on where it was, and the next
comparison with the same commit records the new side alone. `--jobs` records share one side.

`--seconds 30` is a comparison for each step of a change: each process stops after so much processor
time, programs of the hunt come first, and what both sides have is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = Path(tempfile.gettempdir(), "jitney-frozen")
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "pad": {"pad": {"n": "pow2"}},
    "chunk": {"chunk": {"n": 3}},
    "vmap": {"vmap": "b"},
    "precision": {"precision": "bf16"},
}
PORTS = {
    "trf": ["Misra1a", "Lanczos3"],
    "homodyne": ["--points", "2e4", "--angles", "2"],
    "equilibrium": ["--draws", "20"],
    "surrogate": ["train", "--steps", "20"],
}
"""Arguments with which a port's own command takes seconds."""
CHEAP = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
DECIDED = ("decisions", "counts", "causes", "warnings", "error", "code")
"""Fields of a record without words."""
Task = tuple[str, Callable[[], dict[str, Any]]]
"""Name of a record, and the function that makes it."""


def main() -> int:
    """Compare; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("commit", nargs="?", help="what to compare with")
    parser.add_argument(
        "--programs", type=int, default=300, help="of the hunt (default: %(default)s)"
    )
    parser.add_argument("--words", type=Path, help="old and new words")
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes for one side (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, help="of processor time for each process")
    parser.add_argument("--record", type=Path, help="write the record of these files, and stop")
    parser.add_argument("--compare", type=Path, nargs=2, help="two such records, and stop")
    parser.add_argument("--decisions", action="store_true", help="without words and jaxprs")
    parser.add_argument("--port", choices=PORTS, help="print the record of a port, and stop")
    parser.add_argument("--part", type=int, default=0, help="of `--jobs` parts, for `--record`")
    options = parser.parse_args()
    if options.record:
        write_record(options.record, options.programs, options.part, options.jobs, options.seconds)
        return 0
    if options.port:
        print(json.dumps(_port_record(options.port)))
        return 0
    words = (
        [line.split("\t") for line in options.words.read_text().splitlines()]
        if options.words
        else []
    )
    if options.compare:
        before, after = (_read([path]) for path in options.compare)
        return _compared(before, after, words, options.decisions)
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        _git("worktree", "add", "--detach", "-q", str(old), options.commit)
        try:
            shutil.copy(__file__, old / "tests" / "frozen.py")
            before, after = (
                _record(source, old, options.programs, options.jobs, options.seconds)
                for source in (old, ROOT)
            )
        finally:
            _git("worktree", "remove", "--force", str(old))
    if options.seconds:
        both = before.keys() & after.keys()
        before, after = ({name: side[name] for name in both} for side in (before, after))
    return _compared(before, after, words, options.decisions)


def _git(*arguments: str, cwd: Path = ROOT, **env: str) -> str:
    ran = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.strip()


def _tree(folder: Path, *parts: str) -> str:
    """Hash of these parts of a work tree as they are, under git's rules of what is ignored."""
    with tempfile.TemporaryDirectory() as index:
        env = {"GIT_INDEX_FILE": str(Path(index, "index"))}
        _git("add", "-A", *parts, cwd=folder, **env)
        return _git("write-tree", cwd=folder, **env)[:16]


def _record(
    source: Path, programs_of: Path, programs: int, jobs: int, seconds: float | None
) -> dict[str, Any]:
    """The record of one tree's source on the programs of another, which may be the same."""
    env = {
        **os.environ,
        "PYTHONPATH": f"{source / 'src'}:{programs_of}",
        "JITNEY_CACHE": "off",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {CHEAP}",
    }
    KEPT.mkdir(exist_ok=True)
    stem = f"{_tree(source, 'src')}-{_tree(programs_of, 'tests', 'examples')}-{programs}"
    parts = [KEPT / f"{stem}-{part}of{jobs}.jsonl" for part in range(jobs)]
    command = [sys.executable, "-m", "tests.frozen", "--programs", str(programs)]
    command += ["--jobs", str(jobs), *(["--seconds", str(seconds)] if seconds else [])]
    running = [
        subprocess.Popen(
            [*command, "--record", str(out), "--part", str(part)], cwd=programs_of, env=env
        )
        for part, out in enumerate(parts)
    ]
    for each in running:
        if each.wait():
            raise SystemExit(f"frozen: the record of {source} failed")
    return _read(parts)


def _read(parts: list[Path]) -> dict[str, Any]:
    lines = [line for out in parts for line in out.read_text().splitlines()]
    return {each["name"]: each for each in map(json.loads, lines)}


def write_record(
    out: Path, programs: int, part: int = 0, jobs: int = 1, seconds: float | None = None
) -> None:
    """Append every record of this part that the file does not have yet, for so many seconds."""
    warnings.simplefilter("ignore")
    # The last line is torn if the run before was cut off.
    lines = out.read_text().splitlines(keepends=True) if out.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    out.write_text("".join(whole))
    known = {json.loads(line)["name"] for line in whole}
    # Statistics name the first call of a function of one name in a process. After one program of
    # the hunt they say the same wherever a run begins.
    next(_hunted(1))[1]()
    with out.open("a") as file:
        for at, (name, make) in enumerate(tasks(programs)):
            if seconds is not None and time.process_time() > seconds:
                return
            if at % jobs == part and name not in known:
                file.write(f"{json.dumps({'name': name, **make()})}\n")
                file.flush()


def _compared(
    before: dict[str, Any], after: dict[str, Any], words: list[list[str]], decisions: bool
) -> int:
    if decisions:
        before, after = (
            {name: {field: record.get(field) for field in DECIDED} for name, record in side.items()}
            for side in (before, after)
        )
    differ = [
        name
        for name in {**before, **after}
        if _in_new_words(before.get(name), words) != json.dumps(after.get(name))
    ]
    for name in differ:
        print(name)
        old, new = before.get(name) or {}, after.get(name) or {}
        for field in {**old, **new}:
            if old.get(field) != new.get(field):
                print(f"  {field}\n    before: {old.get(field)}\n    after:  {new.get(field)}")
    print(f"frozen: {len(differ)} of {len(after)} differ")
    return int(bool(differ))


def _in_new_words(record: Any, words: list[list[str]]) -> str:
    text = json.dumps(record)
    for old, new in words:
        text = text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
    return text


def tasks(programs: int) -> Iterator[Task]:
    """What is decided about each program under each option."""
    yield from _hunted(programs)
    for port in PORTS:
        yield f"port {port}", lambda port=port: _port_in_process(port)
    yield from _models()


def _port_in_process(port: str) -> dict[str, Any]:
    """A process of its own, since a port sets JAX's configuration."""
    command = [sys.executable, "-m", "tests.frozen", "--port", port]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return {"error": "process", "code": "", "text": _steady(ran.stderr[-2000:])}
    return json.loads(ran.stdout.splitlines()[-1])


def _port_record(port: str) -> dict[str, Any]:
    """Decisions, at its first call, and counts of each program that a port's command calls."""
    from jitney import Program

    seen: dict[int, tuple[Any, dict[str, Any]]] = {}
    call = Program.__call__

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in seen:
            seen[id(self)] = self, {}
            seen[id(self)] = self, _planned(self, args, kwargs)
        return call(self, *args, **kwargs)

    Program.__call__ = recording
    with tempfile.TemporaryDirectory() as out:
        sys.argv = [f"examples.{port}", *PORTS[port], "--out", str(Path(out, "port.png"))]
        code = 0
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            try:
                runpy.run_module(f"examples.{port}", run_name="__main__")
            except SystemExit as end:
                code = end.code
    programs = [(f.__qualname__, planned, _counted(f)) for f, planned in seen.values()]
    for _, _, counted in programs:
        # A port times calls in as many turns as time allows.
        del counted["counts"]["calls"], counted["counts"]["hits"]
    return {
        "decisions": [(name, planned.get("decisions")) for name, planned, _ in programs],
        "counts": [(name, counted["counts"]) for name, _, counted in programs],
        "causes": [(name, counted["causes"]) for name, _, counted in programs],
        "plan": [planned for _, planned, _ in programs],
        "code": code,
        "warnings": _categories(w),
    }


def _planned(f: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        plan = f.plan(*args, **kwargs).to_dict()
    except Exception as error:  # noqa: BLE001 - the error is what is recorded
        return _of_error(error)
    taken = [(each["name"], each["taken"]) for each in plan["decisions"]]
    return {"decisions": taken, "plan": _steady(json.dumps(plan, default=str))}


def _models() -> Iterator[Task]:
    from tests.perf.coverage.models import ALL

    for model in (model for model in ALL if model.group != "calls"):
        for axis in model.sizes:
            for name, options in {
                "pad": {"pad": {axis: "pow2"}},
                "chunk": {"chunk": {axis: 2}},
            }.items():
                yield (
                    f"{model.name} {axis} {name}",
                    lambda model=model, options=options: _decided(
                        model.loss, options, model.data(model.sizes), call=False
                    ),
                )


def _hunted(programs: int) -> Iterator[Task]:
    from tests.hunt._draw import drawn

    count = index = 0
    while count < programs:
        case = drawn(7, index)
        arrays = case.arrays(case.n)
        for e in case.expressions:
            name, options = list(OPTIONS.items())[count % len(OPTIONS)]
            given = {taken: arrays[taken] for taken, _ in e.program.takes}
            yield (
                f"hunt 7 {index} {e.name} {name}",
                lambda case=case, e=e, options=options, given=given: _of_case(
                    case, e, options, given
                ),
            )
            count += 1
        index += 1


def _of_case(case: Any, expression: Any, options: dict[str, Any], given: Any) -> dict[str, Any]:
    with case.numbers():
        return _decided(expression.program.compiled(), options, given, call=True)


def _decided(body: Any, options: dict[str, Any], arguments: Any, call: bool) -> dict[str, Any]:
    from jitney import optimize

    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        try:
            f = optimize(body, **options)
            record = _planned(f, (), arguments)
            record["jaxpr"] = _steady(str(f.trace(**arguments).jaxpr))
            if call:
                f(**arguments)
                f(**arguments)
        except Exception as error:  # noqa: BLE001 - the error is what is recorded
            return {**_of_error(error), "warnings": _categories(w)}
    return {**record, **_counted(f), "warnings": _categories(w)}


def _of_error(error: Exception) -> dict[str, Any]:
    code = getattr(error, "code", "")
    return {"error": type(error).__name__, "code": code, "text": _steady(str(error))}


def _categories(caught: list[warnings.WarningMessage]) -> list[str]:
    """Class and code of each warning of jitney."""
    ours = (each for each in caught if each.category.__module__.startswith("jitney"))
    return sorted(f"{each.category.__name__} {getattr(each.message, 'code', '')}" for each in ours)


def _counted(f: Any) -> dict[str, Any]:
    stats = {name: value for name, value in f.stats.to_dict().items() if "seconds" not in name}
    causes = [[(each["kind"], each["axis"]) for each in trace] for trace in stats["causes"]]
    counts = {name: value for name, value in stats.items() if isinstance(value, int)}
    return {"counts": counts, "causes": causes, "stats": _steady(str(stats))}


def _steady(text: str) -> str:
    """Without addresses of objects, seconds, folders and the numbers of lines."""
    text = re.sub(r"'seconds': [0-9.e-]+", "'seconds': _", text)
    return re.sub(r"0x[0-9a-f]+|(?<=\.py:)\d+|\d+(\.\d+)? (s|ms|us)\b|/tmp/\S+", "_", text)


if __name__ == "__main__":
    sys.exit(main())
