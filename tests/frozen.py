"""What a change that is to change nothing has changed: `python -m tests.frozen COMMIT`.

Plans, programs, statistics and errors of the models of `tests/perf/coverage` and of programs of the
hunt are recorded under the commit and under the files as they are, and compared. `--words FILE` is
a table of words, old and new, a line each with a tab between, for a change of words.
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
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "pad": {"pad": {"n": "pow2"}},
    "chunk": {"chunk": {"n": 3}},
    "vmap": {"vmap": "b"},
    "precision": {"precision": "bf16"},
}


def main() -> int:
    """Compare; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("commit", nargs="?", help="what to compare with")
    parser.add_argument(
        "--programs", type=int, default=300, help="of the hunt (default: %(default)s)"
    )
    parser.add_argument("--words", type=Path, help="old and new words")
    parser.add_argument("--record", type=Path, help="write the record of these files, and stop")
    options = parser.parse_args()
    if options.record:
        options.record.write_text(
            "".join(f"{json.dumps(each)}\n" for each in recorded(options.programs))
        )
        return 0
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        subprocess.run(
            ["git", "worktree", "add", "--detach", "-q", str(old), options.commit],
            cwd=ROOT,
            check=True,
        )
        try:
            shutil.copy(__file__, old / "tests" / "frozen.py")
            before, after = (
                _record(tree, Path(folder, f"{name}.jsonl"), options.programs)
                for name, tree in (("before", old), ("after", ROOT))
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
    words = (
        [line.split("\t") for line in options.words.read_text().splitlines()]
        if options.words
        else []
    )
    return _compared(before, after, words)


def _record(tree: Path, out: Path, programs: int) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "JITNEY_CACHE": "off"}
    command = [
        sys.executable,
        "-m",
        "tests.frozen",
        "--record",
        str(out),
        "--programs",
        str(programs),
    ]
    subprocess.run(command, cwd=tree, env=env, check=True)
    return {each["name"]: each for each in map(json.loads, out.read_text().splitlines())}


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


def recorded(programs: int) -> Iterator[dict[str, Any]]:
    """What is decided about each program under each option."""
    warnings.simplefilter("ignore")
    yield from _models()
    yield from _hunted(programs)


def _models() -> Iterator[dict[str, Any]]:
    from tests.perf.coverage.models import ALL

    for model in ALL:
        arguments = model.data(model.sizes)
        for axis in model.sizes:
            for name, options in {
                "pad": {"pad": {axis: "pow2"}},
                "chunk": {"chunk": {axis: 2}},
            }.items():
                yield {
                    "name": f"{model.name} {axis} {name}",
                    **_decided(model.loss, options, arguments),
                }


def _hunted(programs: int) -> Iterator[dict[str, Any]]:
    from tests.hunt._draw import drawn

    count = index = 0
    while count < programs:
        case = drawn(7, index)
        arrays = case.arrays(case.n)
        with case.numbers():
            for e in case.expressions:
                name, options = list(OPTIONS.items())[count % len(OPTIONS)]
                given = {taken: arrays[taken] for taken, _ in e.program.takes}
                yield {
                    "name": f"hunt 7 {index} {e.name} {name}",
                    **_decided(e.program.compiled(), options, given),
                }
                count += 1
        index += 1


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
