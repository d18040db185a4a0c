"""Check a change in about two minutes: `python -m tests.changed`, or `.ci/run --changed`.

Lint of all; types of the modules that changed and of those that import them; all cases of the test
files that changed; the core's cases of what the change touches. For a module these are the tests of
its folder, the test files that import it, and the tests of the folders that import it. Where half
of the package hangs on it, these are nearly all: then it is the tests of its own folder and those
that import it, and what is left out is said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).parents[1]
CODE = Path("src/jitney")
ABOUT_ALL = ("tests/test_packaging.py", "tests/test_habits.py", "tests/test_selection.py")
"""What is run for the files that set up the project: settings, sessions, workflows."""


@dataclass
class Checks:
    """What a change asks for."""

    whole: set[str] = field(default_factory=set[str])  # test files of which all cases run
    # test files and folders of which the core's cases run
    core: set[str] = field(default_factory=set[str])
    types: set[str] = field(default_factory=set[str])  # source files for the type checker
    left_out: list[str] = field(default_factory=list[str])


def main() -> int:
    """Run the checks that the change asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    parser.add_argument(
        "--base",
        help=(
            "the commit to compare with (default: where this branch left origin/main; without one,"
            " the last commit)"
        ),
    )
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    options = parser.parse_args()
    files = changed_files(options.base or _base())
    if not files:
        print("changed: no file differs from the base")
        return 0
    checks = checks_of(files)
    for kind, paths in (
        ("all cases of", checks.whole),
        ("the core of", checks.core),
        ("types of", checks.types),
    ):
        if paths:
            print(f"changed: {kind} {' '.join(sorted(paths))}")
    for sentence in checks.left_out:
        print(f"changed: left out: {sentence}")
    return 0 if options.list else _run(checks)


def _base() -> str:
    found = _git("merge-base", "HEAD", "origin/main", check=False)
    return found or "HEAD~1"


def changed_files(base: str) -> list[str]:
    """Files that differ from the commit `base`, in commits, in the working tree, or because they
    are new.
    """
    names = [
        *_git("diff", "--name-only", base).splitlines(),
        *_git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]
    return sorted(set(names))


def checks_of(files: Iterable[str]) -> Checks:
    """What changed files ask for."""
    checks, graph = Checks(), grimp.build_graph("jitney")
    for name in files:
        path = PurePosixPath(name)
        if path.is_relative_to(CODE.as_posix()) and path.suffix == ".py":
            _of_module(path, graph, checks)
        elif path.parts[0] == "tests" and path.name.startswith("test_"):
            checks.whole |= _there(name)
        elif path.parts[0] == "tests" and len(path.parts) > 2:
            checks.core |= _there(f"tests/{path.parts[1]}")
        elif path.parts[0] == "examples" and len(path.parts) > 2:
            checks.core |= _there(f"examples/{path.parts[1]}")
        elif path.suffix == ".md":
            checks.core |= _page(name)
        elif len(path.parts) == 1 or path.parts[0] == ".ci":
            checks.core |= _there(*ABOUT_ALL)
    checks.core -= checks.whole
    return checks


def _of_module(path: PurePosixPath, graph: grimp.ImportGraph, checks: Checks) -> None:
    """The tests and the types that a module of the package asks for."""
    module = ".".join(path.relative_to("src").with_suffix("").parts).removesuffix(".__init__")
    checks.core |= _tests_of(module) | _importing(module)
    checks.types |= _there(path.as_posix())
    if module not in graph.modules:
        return
    importers, users = (
        graph.find_modules_that_directly_import(module),
        graph.find_downstream_modules(module),
    )
    if 2 * len(users) > len(graph.modules):
        checks.left_out.append(
            f"tests of the {len(users)} of {len(graph.modules)} modules that hang on {module}; `nox"
            " -s tests` has them"
        )
        return
    for importer in importers:
        checks.core |= _tests_of(importer)
        file = Path("src", *importer.split("."))
        checks.types |= _there(f"{file.as_posix()}.py", f"{file.as_posix()}/__init__.py")


def _tests_of(module: str) -> set[str]:
    """The test folder of a module's folder; of a module beside the folders, its test file."""
    _, *names = module.split(".")
    if not names:
        return set()
    folder = names[0].strip("_")
    return _there(f"tests/{folder}", f"tests/test_{folder}.py")


def _importing(module: str) -> set[str]:
    """Test files that name a module of the package in their text."""
    *package, name = module.split(".")
    words = (f"{module} ", f"{module}\n", f"from {'.'.join(package)} import {name}\n")
    files = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if any(word in path.read_text() for word in words)
    ]
    return {path.relative_to(ROOT).as_posix() for path in files}


def _page(name: str) -> set[str]:
    """The test that runs the code of a page."""
    if not (ROOT / name).exists():
        return set()
    return (
        {f"tests/test_docs.py::test_code_of_a_page_runs[{name}]"}
        if "```python" in (ROOT / name).read_text()
        else set()
    )


def _there(*names: str) -> set[str]:
    return {name for name in names if (ROOT / name).exists()}


def _run(checks: Checks) -> int:
    """Types beside the tests, since the type checker keeps one core busy."""
    began = time.monotonic()
    commands = [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["lint-imports", "--no-cache", "--no-logo"],
    ]
    failed = [command[0] for command in commands if _code(command) != 0]
    beside = (
        subprocess.Popen([_tool("pyright"), *sorted(checks.types)], cwd=ROOT, env=_env())
        if checks.types
        else None
    )
    pytest = ["pytest", "-q", "--quick-xla=1/4", "-n", "2", "--dist=worksteal"]
    for options, paths in (([], checks.whole), (["--core"], checks.core)):
        # 5: of these no case is in the core
        if paths and _code([*pytest, *options, *sorted(paths)]) not in (0, 5):
            failed.append("pytest")
    if beside is not None and beside.wait() != 0:
        failed.append("pyright")
    verdict = f"failed: {', '.join(dict.fromkeys(failed))}" if failed else "passed"
    print(f"changed: {verdict}, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _code(command: Sequence[str]) -> int:
    return subprocess.run(
        [_tool(command[0]), *command[1:]], cwd=ROOT, env=_env(), check=False
    ).returncode


def _tool(name: str) -> str:
    """A command of this environment, whether or not it is activated."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


def _git(*command: str, check: bool = True) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=check)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
