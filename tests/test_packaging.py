"""What a user installs: the wheel, its names, and what importing it does."""

import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import jitney
from tests._public import public_names

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SOURCES = [path for folder in ("src", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
PUBLIC = public_names()
API = {
    "jitney": (
        "Bucket JitneyError JitneyWarning LossScale Program accumulate configure devices host"
        " lazy_derivatives load measure mesh no_compiles optimize pipeline place profile"
        " ragged register_axes scan_steps shared stack static stream wait watch"
    ),
    "jitney.analysis": "axes communication frontier precision_report strategy visualize",
    "jitney.errors": (
        "AnnotationWarning AxisError BudgetError CacheWarning ChunkWarning CompileError"
        " ContractError DataError DataWarning DerivativeError DonationError EagerWarning ExportError"
        " MeasurementWarning MemoryWarning MeshError NonFiniteError OptionError PaddingWarning"
        " PrecisionError PrecisionWarning ProcessError RetraceWarning SettingWarning"
        " StateError StaticError TraceError TransformWarning UpdateWarning"
        " VerificationError VerificationWarning"
    ),
    "jitney.processes": "Checkpoints Processes distributed from_processes",
    "jitney.simulation": "Device Share Simulation Sweep Traffic simulate",
    "jitney.states": "DerivedField State derived",
    "jitney.testing": (
        "CompiledProgram Faster Temporaries assert_faster assert_memory assert_no_recompile"
    ),
    "jitney.types": (
        "AxisFacts CacheFacts Cause Collective Communication Derivative Deviation DeviceFacts DeviceSpeed"
        " ExportedProgram Fetch Frontier Loaded Machine Measurement MemoryCourse MemoryPeak Mesh NoCompiles PaddedRows"
        " Pipeline Placement PrecisionReport Product Profile Ragged Report Saving Schedule Stacked"
        " Static Stats Strategy"
        " StreamStats Streamed Timing Verdict Watch Way Work"
    ),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel built from the tree as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    path = next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    return zipfile.ZipFile(path).namelist()


def test_installed_version_is_the_one_of_pyproject():
    """Package metadata, and so `pip show`, and `jitney.__version__` give the version that the tree
    says.
    """
    assert importlib.metadata.version("jitney") == jitney.__version__ == PROJECT["version"]


def test_the_citation_is_of_this_version():
    """Who cites it names what was used, with the day that the changelog gives it."""
    version = PROJECT["version"]
    released = re.search(
        rf"^## \[{re.escape(version)}\] - (\S+)$",
        (ROOT / "CHANGELOG.md").read_text(),
        flags=re.MULTILINE,
    )[1]
    cited = (ROOT / "CITATION.cff").read_text().splitlines()
    assert {f"version: {version}", f"date-released: {released}"} <= set(cited)


def test_no_placeholder_is_published():
    """An address that is not there yet is left out, in the package's metadata, in what is cited and
    in the site.
    """
    published = [str(PROJECT.get("urls", {})), PROJECT["authors"][0].get("email", "")]
    pages = ("CITATION.cff", "mkdocs.yml", "conda/recipe.yaml", "README.md")
    published += [(ROOT / name).read_text() for name in pages]
    for text in published:
        assert not re.search(r"example\.(com|org)|TODO|FIXME|your-?(name|org)|<owner>", text)


def test_the_console_script_is_the_command_line():
    """`jitney doctor` and `python -m jitney doctor` are one."""
    module, function = PROJECT["scripts"]["jitney"].split(":")
    script = getattr(importlib.import_module(module), function)
    assert script is importlib.import_module("jitney.__main__").main


def test_the_hooks_before_a_commit_are_those_of_lint():
    """The same versions of the same tools, which the gate runs."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    pins = set(re.findall(r"additional_dependencies: \[(.*)\]", hooks))
    assert pins == set(PROJECT["optional-dependencies"]["lint"])


def test_the_workflow_runs_the_gate_and_builds_the_site():
    """What a fork checks is what a developer checks."""
    steps = re.findall(r"- run: (.*)", (ROOT / ".github/workflows/checks.yml").read_text())
    assert {".ci/run", "python -m nox -s docs"} <= set(steps)


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for():
    """The same version and Python, the same requirements with the same bounds, and what builds the
    wheel.
    """
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    run = re.search(r"^  run:\n((?:    - .*\n)+)", recipe, flags=re.MULTILINE)[1]
    asked = {line.strip().removeprefix("- ").replace(" ", "") for line in run.splitlines()}
    # Under the name that conda-forge has it by.
    asked = {need.replace("python-xxhash", "xxhash") for need in asked}
    assert asked == {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}
    assert f'\n  version: "{PROJECT["version"]}"\n' in recipe
    host = re.findall(r"^    - (.*)$", recipe.split("  run:")[0], flags=re.MULTILINE)
    needs = {f"python{PROJECT['requires-python']}", "pip", *PYPROJECT["build-system"]["requires"]}
    assert {need.replace(" ", "") for need in host} == needs


def test_public_names_are_these():
    """A name that comes or goes is a decision, which is made here and in the changelog."""
    names = {f"{module}.{name}" for module, listed in API.items() for name in listed.split()}
    assert names == set(PUBLIC)


def test_changelog_knows_the_version():
    """There is a section for the version, or one for what is not released yet."""
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert headings[0].startswith(("## [Unreleased]", f"## [{PROJECT['version']}]"))


def test_wheel_ships_the_marker_of_typed_packages(wheel: list[str]):
    """Without `py.typed` a type checker ignores jitney's annotations."""
    assert "jitney/py.typed" in wheel


def test_wheel_holds_the_package_and_nothing_else(wheel: list[str]):
    """Tests stay in the source tree, and the examples have a name that does not collide with the
    user's own.

    The plugin of pytest stands beside the package, since what it uses there imports JAX.
    """
    assert {name.split("/")[0] for name in wheel} == {
        "jitney",
        "jitney_examples",
        "pytest_jitney.py",
        f"jitney-{PROJECT['version']}.dist-info",
    }


def test_wheel_ships_the_examples_with_their_data(wheel: list[str]):
    """And without their tests. Their modules import one another by relative names, since the
    folder has one name in a clone and another where it is installed.
    """
    assert {"jitney_examples/trf/drop_in.py", "jitney_examples/trf/data/Misra1a.dat"} <= set(wheel)
    assert [name for name in wheel if "/tests/" in name] == []
    absolute = re.compile(r"^\s*(from|import) examples\b", flags=re.MULTILINE)
    sources = (path for path in SOURCES if "tests" not in path.parts)
    assert [str(path) for path in sources if absolute.search(path.read_text())] == []


def test_wheel_ships_what_the_page_of_a_run_reads(wheel: list[str]):
    """Its style and its script are files beside its module."""
    page = ROOT / "src/jitney/_command/page"
    beside = {f"jitney/_command/page/{path.name}" for path in page.glob("run.*")}
    assert len(beside) == 2
    assert beside <= set(wheel)


def test_wheel_ships_the_licence(wheel: list[str]):
    """Apache-2.0 asks that every copy comes with its text."""
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_source_uses_no_private_jax_module():
    """Private modules of JAX change without notice, so neither the package nor an example needs
    one.
    """
    assert SOURCES
    assert [str(path.relative_to(ROOT)) for path in SOURCES if "jax._src" in path.read_text()] == []


def test_public_names_are_documented():
    """What can be imported has a docstring and a place in the API reference, and the page of all
    names leads to it.
    """
    assert [path for path, each in PUBLIC.items() if not (each.__doc__ or "").strip()] == []
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")}
    names = (ROOT / "docs" / "api.md").read_text()
    homes = {
        path: [name for name, text in pages.items() if f"::: {path}\n" in text] for path in PUBLIC
    }
    assert [path for path, found in homes.items() if len(found) != 1] == []
    assert [path for path, (home,) in homes.items() if f"](api/{home}#{path})" not in names] == []
    # the page of the classes of results leads to them, too
    types = [path for path in PUBLIC if path.startswith("jitney.types.")]
    assert [path for path in types if f"]({homes[path][0]}#{path})" not in pages["types.md"]] == []


@pytest.mark.rest
def test_import_has_no_side_effects(tmp_path: Path):
    """Importing jitney starts no backend, changes no setting of JAX, loads no example's dependency
    and writes nothing.
    """
    script = """
import os, sys, jax
before = dict(jax.config.values), dict(os.environ)
import jitney
assert (dict(jax.config.values), dict(os.environ)) == before, "a setting changed"
assert not {"scipy.optimize", "matplotlib", "optimistix", "lineax"} & set(sys.modules), "an example's dependency was imported"
assert not {"jax.experimental.sparse", "scipy.sparse", "rich", "tqdm"} & set(sys.modules), "what few calls need was imported"
jax.config.update("jax_num_cpu_devices", 3)  # JAX refuses this once a backend has started
assert jax.local_device_count("cpu") == 3
"""
    home = tmp_path / "home"
    home.mkdir()
    clean = {
        "HOME": str(home),
        "JITNEY_CACHE_DIR": str(home / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
