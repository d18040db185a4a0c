"""What is imported when: nothing by `import jitney`, and each tool when it is asked for."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import jitney

SOURCE = Path(jitney.__file__).parent
LAZY = [path for path in sorted(SOURCE.rglob("*.py")) if "_lazy import names" in path.read_text()]
IDS = [path.parent.name if path.stem == "__init__" else path.stem for path in LAZY]
TOOLS = {
    "_analysis",
    "_command",
    "_console",
    "_devices",
    "_measured",
    "_simulate",
    "_stream",
    "_processes.distributed",
    "testing",
}
ENGINES = {
    "_axes.carriers",
    "_axes.chunks",
    "_axes.rules",
    "_axes.symbolic.symbolic_trace",
    "_serialized.kept",
    "_record",
    "_precision.products",
    "_remat.problem",
    "_sparsity.jacobian_mode",
}

TYPED = """
import contextlib, io, json, sys
from jitney._command.arguments import main
said = io.StringIO()
for typed in ("--help", "--version", "run --help", "run missing.py", "doctor --help", "cache ls --help", "cache", "cache lst", "nothing"):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        main(typed.split())
print(json.dumps(sorted(sys.modules)))
"""
FIRST = """
import json, sys, warnings
warnings.simplefilter("error")
import equinox, jax, numpy as np  # Equinox adds to the keys of JAX 0.12, by an import of Pallas
from jaxtyping import Array, Float
told = {}
def ours():
    return sorted(name.removeprefix("jitney.") for name in sys.modules if name.startswith("jitney."))
import jitney
told["import"] = ours()
traces = []
plain = jax.jit(lambda x: traces.append(x) or x + 1)
plain(1.0)
@jitney.optimize
def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.numpy.sin(x)
told["decorated"] = ours()
x = np.arange(5, dtype=np.float32)
f(x)
told["called"] = ours()
f(x)
told["warm"] = ours()
@jitney.optimize(pad={"n": "pow2"})
def centred(x: Float[Array, "n"]) -> Float[Array, "n"]:
    jitney.simulation.simulate  # imported by the body, while it is traced
    return x - x.mean()
told["padded"] = centred(x).tolist()
told["inside"] = ours()
told["plan"] = str(centred.plan(x))
centred(np.arange(6, dtype=np.float32))
told["programs"] = centred.stats.compiles + centred.stats.persistent_hits  # this script may have run before
plain(1.0)
told["plain"] = len(traces)
print(json.dumps(told))
"""
THREADS = """
import json, sys, threading
import jitney
names, found, ready = sorted(jitney.__all__), [], threading.Barrier(8)
def ask(first):
    ready.wait()
    found.append({name: id(getattr(jitney, name)) for name in (*names[first:], *names[:first])})
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=ask, args=(len(names) * i // 8,)) for i in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([len(found), all(one == found[0] for one in found)]))
"""
TRACED = """
import importlib, json, pkgutil, warnings
import jax, jitney
def inside(x):
    for module in pkgutil.walk_packages(jitney.__path__, "jitney."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return x
with jax.checking_leaks():
    traced = jax.jit(inside).trace(1.0)
print(json.dumps(len(traced.jaxpr.eqns)))
"""


def run(script: str, **environment: str) -> Any:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    """The modules of jitney after each of some first steps."""
    return run(FIRST)


def brought(names: list[str], packages: set[str]) -> set[str]:
    """Which of some modules and packages are there."""
    return {
        package
        for package in packages
        if any(name == package or name.startswith(f"{package}.") for name in names)
    }


def test_import_jitney_imports_nothing_else(first: dict[str, Any]):
    """Small files, and JAX only when a name is asked for."""
    assert first["import"] == ["_jax", "_jax.user_contexts", "_lazy", "_version"]


def test_what_was_traced_before_stays_traced(first: dict[str, Any]):
    """What jitney adds to the keys of JAX's caches is there with the import."""
    assert first["plain"] == 1


@pytest.mark.rest
def test_what_jax_starts_with_is_set_by_the_import_alone():
    """JAX may start before a name of jitney is asked for, and reads this once."""
    script = (
        "import json, os, jitney; import jax; print(json.dumps([jax.config.jax_platforms,"
        " os.environ['PJRT_NPROC']]))"
    )
    assert run(script, JITNEY_THREADS="1", JITNEY_PLATFORM="cpu") == ["cpu", "1"]


def test_what_is_typed_is_read_without_jax():
    """Help, versions and mistakes of the command line are there at once."""
    there = run(TYPED)
    assert [name for name in there if name.startswith("jitney.")] == [
        "jitney._command",
        "jitney._command.arguments",
        "jitney._command.start",
        "jitney._errors",
        "jitney._lazy",
        "jitney._public",
        "jitney._version",
        "jitney.errors",
    ]
    assert not {"jax", "numpy", "equinox"} & set(there)


def test_the_engines_have_the_names_that_files_have():
    """A file that is moved takes its name in this list along."""
    there = {path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*")}
    assert [name for name in sorted(ENGINES) if name.replace(".", "/") not in there] == []


def test_a_plain_call_brings_no_tool_and_no_engine(first: dict[str, Any]):
    """What only reports, streams, simulated devices, proofs of axes or sparse derivatives need is
    not there after a call.
    """
    assert not brought(first["called"], TOOLS | ENGINES)


def test_a_warm_call_imports_nothing(first: dict[str, Any]):
    """All that a call needs came with the first."""
    assert first["warm"] == first["called"]


def test_an_import_while_a_padded_body_is_traced_leaves_it_proven(first: dict[str, Any]):
    """Neither the engine, which comes with the first padded call, nor what the body itself imports
    looks at a size.
    """
    assert first["padded"] == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert "_simulate.simulate" in first["inside"]
    assert first["programs"] == 1, first["plan"]


@pytest.mark.rest
def test_modules_make_no_arrays():
    """All of them are imported inside a trace: no operation is in its program, and no tracer is
    left behind.
    """
    assert run(TRACED) == 0


@pytest.mark.rest
def test_threads_that_ask_at_once_find_the_same():
    """Eight threads ask for all names in a process that has none, each in another order."""
    assert run(THREADS) == [8, True]


@pytest.mark.parametrize("path", LAZY, ids=IDS)
def test_type_checkers_see_what_is_imported(path: Path):
    """Both lists of a package name the same, each from where it is, and none is called as a module
    beside it.
    """
    tree = ast.parse(path.read_text())
    typed = {
        name.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname == name.name and node.module is not None
    }
    (places,) = [ast.literal_eval(node) for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    assert {name: module for name, module in typed.items() if name != "__version__"} == places
    if path.stem == "__init__":
        assert not set(places) & {each.stem for each in path.parent.iterdir()}


@pytest.mark.parametrize("path", LAZY, ids=IDS)
def test_each_name_is_found(path: Path):
    """As the object that its module has, and as one of `dir` and of `__all__`."""
    parts = ("jitney", *path.relative_to(SOURCE).with_suffix("").parts)
    package = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        value = getattr(package, name)
        assert value is getattr(package, name)
        assert vars(package)[name] is value


def test_a_name_that_is_not_there_is_an_attribute_error():
    """With the name that was meant, as of any module."""
    with pytest.raises(
        AttributeError, match="module 'jitney' has no attribute 'optimise'"
    ) as caught:
        jitney.optimise  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("optimise", jitney)


def test_a_star_brings_the_public_names():
    """What `dir` shows, but for the modules: one of them would hide `types` of Python."""
    there: dict[str, Any] = {}
    exec("from jitney import *", there)
    shown = {name for name in dir(jitney) if not name.startswith("_")}
    modules = {name for name in shown if isinstance(getattr(jitney, name), ModuleType)}
    assert "types" in modules
    assert set(there) - {"__builtins__"} == set(jitney.__all__) == shown - modules


def attributes_of_modules(tree, names):
    """The chains of attributes that code takes from modules other than jitney's, each with its
    line.
    """
    for node in ast.walk(tree):
        chain, root = [], node
        while isinstance(root, ast.Attribute):
            chain, root = [root.attr, *chain], root.value
        module = names.get(root.id) if isinstance(root, ast.Name) else None
        if chain and isinstance(module, ModuleType) and not module.__name__.startswith("jitney"):
            yield node.lineno, module, chain


@pytest.mark.rest
def test_what_is_taken_of_other_modules_exists():
    """With the installed versions, the oldest and the newest among them: in an `except` it would
    not be seen before something fails.
    """
    missing = []
    for path in sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "__main__.py"}):
        name = ".".join(("jitney", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for line, found, chain in attributes_of_modules(
            ast.parse(path.read_text()), vars(importlib.import_module(name))
        ):
            value: Any = found
            for attribute in chain:
                if not isinstance(value, ModuleType):
                    break
                if not hasattr(value, attribute):
                    missing.append(f"{name}:{line}: {value.__name__}.{attribute}")
                    break
                value = getattr(value, attribute)
    assert missing == []


def test_no_import_sets_flags_of_the_compiler():
    """They would be those of every process that starts afterwards, in the tests too."""
    at_import = re.compile(r"^os\.environ.*(XLA_FLAGS|JAX_)", re.MULTILINE)
    assert [
        str(path)
        for folder in (SOURCE, Path(__file__).parents[1] / "examples")
        for path in folder.rglob("*.py")
        if at_import.search(path.read_text())
    ] == []
