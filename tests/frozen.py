"""What a change that is to change nothing has changed: `python -m tests.frozen COMMIT`.

Plans, programs, statistics and errors of the models of `tests/perf/coverage` and of programs of the
hunt are recorded under the commit and under the files as they are, and compared. `--words FILE` is
a table of words, old and new, a line each with a tab between, for a change of words.

A record takes about 180 s of processor time, half of it in the proofs and traces of the models with
differential equations. So each line is written as soon as it is known, in a folder for temporary
files under the hash of the tree: a run that is cut off goes on where it was, and the next
comparison with the same commit records the new side alone. `--jobs` records share one side.

`--seconds 30` is a comparison for each step of a change: each process stops after so much processor
time, programs of the hunt come first, and what both sides have is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
    parser.add_argument("--part", type=int, default=0, help="of `--jobs` parts, for `--record`")
    options = parser.parse_args()
    if options.record:
        write_record(options.record, options.programs, options.part, options.jobs, options.seconds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        _git("worktree", "add", "--detach", "-q", str(old), options.commit)
        try:
            shutil.copy(__file__, old / "tests" / "frozen.py")
            before, after = (
                _record(tree, options.programs, options.jobs, options.seconds)
                for tree in (old, ROOT)
            )
        finally:
            _git("worktree", "remove", "--force", str(old))
    if options.seconds:
        both = before.keys() & after.keys()
        before, after = ({name: side[name] for name in both} for side in (before, after))
    words = (
        [line.split("\t") for line in options.words.read_text().splitlines()]
        if options.words
        else []
    )
    return _compared(before, after, words)


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


def _tree(folder: Path) -> str:
    """Hash of the files of a work tree as they are, under git's rules of what is ignored."""
    with tempfile.TemporaryDirectory() as index:
        env = {"GIT_INDEX_FILE": str(Path(index, "index"))}
        _git("add", "-A", "src", "tests", cwd=folder, **env)
        return _git("write-tree", cwd=folder, **env)


def _record(tree: Path, programs: int, jobs: int, seconds: float | None) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "JITNEY_CACHE": "off"}
    KEPT.mkdir(exist_ok=True)
    parts = [KEPT / f"{_tree(tree)}-{programs}-{part}of{jobs}.jsonl" for part in range(jobs)]
    command = [sys.executable, "-m", "tests.frozen", "--programs", str(programs)]
    command += ["--jobs", str(jobs), *(["--seconds", str(seconds)] if seconds else [])]
    running = [
        subprocess.Popen([*command, "--record", str(out), "--part", str(part)], cwd=tree, env=env)
        for part, out in enumerate(parts)
    ]
    for each in running:
        if each.wait():
            raise SystemExit(f"frozen: the record of {tree} failed")
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


def _compared(before: dict[str, Any], after: dict[str, Any], words: list[list[str]]) -> int:
    differ = [
        name
        for name in {**before, **after}
        if _in_new_words(before.get(name), words) != json.dumps(after.get(name))
    ]
    for name in differ[:20]:
        print(f"{name}\n  before: {before.get(name)}\n  after:  {after.get(name)}")
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
    yield from _models()


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
                        model.loss, options, model.data(model.sizes)
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
        return _decided(expression.program.compiled(), options, given)


def _decided(body: Any, options: dict[str, Any], arguments: Any) -> dict[str, Any]:
    from jitney import optimize

    try:
        f = optimize(body, **options)
        plan = f.plan(**arguments)
        jaxpr = str(f.trace(**arguments).jaxpr)
    except Exception as error:  # noqa: BLE001 - what is compared is the error, whatever it is
        return {
            "error": type(error).__name__,
            "code": getattr(error, "code", ""),
            "text": _steady(str(error)),
        }
    return {
        "plan": _steady(json.dumps(plan.to_dict(), default=str)),
        "jaxpr": _steady(jaxpr),
        "stats": _steady(str(_counts(f.stats.to_dict()))),
    }


def _counts(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if "seconds" not in name}


def _steady(text: str) -> str:
    """Without addresses of objects, seconds, folders and the numbers of lines."""
    text = re.sub(r"'seconds': [0-9.e-]+", "'seconds': _", text)
    return re.sub(r"0x[0-9a-f]+|(?<=\.py:)\d+|\d+(\.\d+)? (s|ms|us)\b|/tmp/\S+", "_", text)


if __name__ == "__main__":
    sys.exit(main())
