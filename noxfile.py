"""Every job of the project: `python -m nox -l` lists them, `python -m nox -s demo` runs one."""

import functools
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

PROJECT = nox.project.load_toml("pyproject.toml")
EXTRAS = PROJECT["project"]["optional-dependencies"]
SUPPORTED = nox.project.python_versions(PROJECT)
# What a session's venv needs, and what keeps pre-releases and free-threaded builds out.
PROBE = (
    "import ensurepip, sys, sysconfig; sys.exit(sys.version_info[3] != 'final' or"
    " bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
)
# Images of containers set it, and each process would then compile all sources that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Two threads that contend for two cores slow LAPACK 40 times.
ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
# Prints nothing where JAX has the backend, else JAX's own reason.
WHY_ABSENT = """
import sys, jax
try:
    jax.devices(sys.argv[1])
except RuntimeError as error:
    print(str(error).strip().splitlines()[0])
"""

# The recipe for conda, as rattler-build takes it.
RECIPE = """
from pathlib import Path
from rattler_build import Stage0Recipe

print(*Stage0Recipe.from_yaml(Path("conda/recipe.yaml").read_text()).render())
"""

# What the wheel has to do where nothing else is installed: a padded and mapped call, its plan, its
# drawing.
FIRST_CALL = """
import jax.numpy as jnp, jitney
from jaxtyping import Array, Float

def f(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * x)

program = jitney.optimize(vmap="row", pad={"n": "pow2"})(f)
assert program(jnp.ones((2, 3))).tolist() == [3, 3]
plan = program.plan(jnp.ones((2, 3)))
assert plan.draw().startswith("<svg")
print(plan, jitney.__version__, jitney.__file__, sep="\\n")
"""


@functools.cache
def interpreter(version: str) -> str | None:
    """Path of a `python3.N` that runs (a shim of pyenv may not): from PATH, else from pyenv's own
    folder.
    """
    folders = [Path(folder) for folder in os.get_exec_path()]
    roots = {folder.parent for folder in folders if folder.name == "shims"}
    if shutil.which("pyenv"):
        roots.add(
            Path(
                subprocess.run(
                    ["pyenv", "root"], capture_output=True, text=True, check=False
                ).stdout.strip()
            )
        )
    folders += sorted(folder for root in roots for folder in root.glob(f"versions/{version}.*/bin"))
    for folder in folders:
        found = shutil.which(f"python{version}", path=str(folder))
        if (
            found
            and subprocess.run([found, "-c", PROBE], capture_output=True, check=False).returncode
            == 0
        ):
            return found
    return None


def newest() -> str | None:
    """Newest supported Python on this machine."""
    return next(filter(None, map(interpreter, reversed(SUPPORTED))), None)


def lower_bounds() -> list[str]:
    """The run-time requirements, each at the lowest version that pyproject.toml allows."""
    return [requirement.replace(">=", "==") for requirement in PROJECT["project"]["dependencies"]]


# nox itself may run on an older Python than jitney needs; `None` is nox's own.
DEFAULT = None if sys.version_info >= (3, 11) else newest()


# The core of the tests (tests/_selection.py). Each session compiles another quarter of the files as
# users have it, and the others quickly (tests/_compiles.py).
CORE = ("--core", "tests", "examples")


def run_tests(
    session: nox.Session,
    *requirements: str,
    paths: tuple[str, ...] = (),
    workers: str = "auto",
    takes: str = "",
    **env: str,
) -> None:
    """Install the project and run its tests, or what follows `--` on the command line.

    Options alone, as `-- --part=1/2`, are added to those of the session.
    """
    session.install("-e", ".[examples,tests]", *requirements)
    session.run(
        "python",
        "-c",
        "import sys, jax; print('Python', sys.version.split()[0], '- jax', jax.__version__)",
        env=env,
    )
    env |= {
        "JITNEY_NOX_SESSION": session.name.removesuffix(f"-{session.python}"),
        "JITNEY_TESTS_TAKE": takes,
    }
    own = ["-n", workers, "--maxprocesses=4", "--dist=worksteal", *paths]
    adds = all(word.startswith("--") for word in session.posargs)
    session.run("pytest", *([*own, *session.posargs] if adds else session.posargs), env=env)


# The main jobs, and how long each takes on two idle cores.
DEMO = {
    "trf": "Fits of 14 NIST sets, beside SciPy: about 30 s",
    "homodyne": "A million X-ray correlations, fitted three ways: about 20 s",
    "equilibrium": "Seven published macroeconomic models: about 20 s",
    "surrogate": "A causal model: about 10 s",
}


@nox.session(python=DEFAULT)
def demo(session: nox.Session) -> None:
    """Fit the 14 NIST data sets, then a million correlations three ways, solve macroeconomic
    models, look at a causal one; measure what is gained, on a page with pictures.
    """
    session.log("Installing jitney, JAX and what the examples need: a minute at most, once.")
    session.install("-e", ".[examples,export]", silent=False)
    chosen = {"trf": DEMO["trf"]} if session.posargs else DEMO
    for name, told in chosen.items():
        session.log(f"{told}.")
        session.run("python", "-m", f"examples.{name}", *session.posargs, env=ONE_BLAS_THREAD)
    if not session.posargs:
        session.log("What is gained over what is common today, measured here: about a minute.")
        session.run("python", "-m", "examples", env=ONE_BLAS_THREAD)


@nox.session(python=DEFAULT)
def tests(session: nox.Session) -> None:
    """Run the core of the tests, each behaviour once, on the default Python with the newest JAX for
    it.
    """
    run_tests(session, paths=(*CORE, "--quick-xla=1/4"), takes="four to six minutes on two cores")


@nox.session(python=DEFAULT, name="tests-rest")
def tests_rest(session: nox.Session) -> None:
    """Run what `tests` leaves: the other cases, and a twelfth of the sweeps."""
    run_tests(session, paths=("--rest", "--sweeps=1/12"))


# What a newcomer wants to know first: contracts, plans, padding, chunks and the first page work
# here.
SMOKE = (
    "tests/test_habits.py",
    "tests/report",
    "tests/contract",
    "tests/stages/test_vmap.py",
    "tests/stages/test_pad.py",
    "tests/stages/test_chunk.py",
    "tests/test_docs.py::test_code_of_a_page_runs[README.md]",
    "tests/test_docs.py::test_code_of_a_page_runs[docs/quickstart.md]",
)


@nox.session(python=DEFAULT)
def smoke(session: nox.Session) -> None:
    """Run a well-chosen part of the tests in about a minute on two idle cores, for those who see
    this for the first time.
    """
    run_tests(
        session,
        paths=(*SMOKE, "--core", "--quick-xla=1/4"),
        takes="about a minute on two idle cores",
    )


@nox.session(python=interpreter(SUPPORTED[0]))
def tests_oldest(session: nox.Session) -> None:
    """Run the core on the oldest supported Python with the oldest supported JAX and friends."""
    if interpreter(SUPPORTED[0]) is None:
        session.skip(f"no Python {SUPPORTED[0]} on this machine")
    run_tests(session, *lower_bounds(), paths=(*CORE, "--quick-xla=3/4"))


@nox.session(python=newest())
def tests_newest(session: nox.Session) -> None:
    """Run the core on the newest Python found with the newest JAX for it."""
    if newest() is None:
        session.skip(f"no Python {' or '.join(SUPPORTED)} on this machine")
    eager = (
        ("--upgrade",)
        if session.venv_backend == "uv"
        else ("--upgrade", "--upgrade-strategy=eager")
    )
    run_tests(session, *eager, paths=(*CORE, "--quick-xla=4/4"))


# What the pages of `docs/with` are about, beyond the extras. torch brings its libraries for GPUs:
# `nox -s libraries -- torch` installs it, and its page is skipped otherwise.
LIBRARIES = ("flax", "numpyro", "blackjax", "pandas", "joblib", "distributed")


@nox.session(python=DEFAULT)
def libraries(session: nox.Session) -> None:
    """Run the pages about other libraries with the newest release of each; `-- torch` installs
    that too.
    """
    extras = "-e", ".[examples,sampling,discovery,board,tests]"
    session.install(*extras, *LIBRARIES, *session.posargs)
    session.run(
        "pytest", "tests/test_docs.py", "tests/test_libraries.py", "-k", "docs/with or libraries"
    )
    session.run("pytest", "examples/surrogate", "-k", "pc_finds or tensorboard")
    # Chains by blackjax are skipped where it is not installed.
    session.run("pytest", "examples/equilibrium", "examples/homodyne", "-k", "chains or posterior")


@nox.session(python=DEFAULT, name="tests-cpu")
def tests_cpu(session: nox.Session) -> None:
    """Run all tests on one CPU device, whatever else the machine has."""
    run_tests(session, JAX_PLATFORMS="cpu")


@nox.session(python=DEFAULT, name="tests-verify")
def tests_verify(session: nox.Session) -> None:
    """Run the tests of what pads, cuts, streams and differentiates under `verify`: each new program
    is also run plainly and compared.
    """
    names = (
        "stages/test_pad.py",
        "stages/test_chunk.py",
        "stream",
        "interface/test_derivatives.py",
        "sparsity/test_sparsity.py",
    )
    run_tests(session, paths=tuple(f"tests/{name}" for name in names), JITNEY_VERIFY="1")


@nox.session(python=DEFAULT, name="tests-cpu8")
def tests_cpu8(session: nox.Session) -> None:
    """Run the tests of several devices on eight virtual CPU devices; other sessions skip them. `--
    tests` runs all tests there.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    # One process: its eight devices wait for each other, and have to come to run.
    run_tests(
        session,
        paths=("tests/devices", "--quick-xla=1/4"),
        workers="1",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=flags.strip(),
    )


@nox.session(python=DEFAULT, name="tests-distributed")
def tests_distributed(session: nox.Session) -> None:
    """Run the tests of several processes, which start real ones on this machine; other sessions
    skip them.
    """
    run_tests(
        session,
        paths=("tests/distributed",),
        workers="0",
        JAX_PLATFORMS="cpu",
        JITNEY_TEST_PROCESSES="1",
    )


@nox.session(python=DEFAULT, name="tests-gpu")
def tests_gpu(session: nox.Session) -> None:
    """Run all tests on a GPU; skipped where JAX finds none."""
    on_backend(session, "gpu", "jax[cuda]" if shutil.which("nvidia-smi") else "jax")


@nox.session(python=DEFAULT, name="tests-tpu")
def tests_tpu(session: nox.Session) -> None:
    """Run all tests on a TPU; skipped where JAX finds none."""
    has_device = any(Path("/dev").glob("accel*")) or any(Path("/dev").glob("vfio/*"))
    on_backend(session, "tpu", "jax[tpu]" if has_device else "jax")


def on_backend(session: nox.Session, backend: str, jax: str) -> None:
    """Run the tests on `backend`, or skip with JAX's reason; the large plugin is installed only
    where the hardware shows.
    """
    session.install(jax)
    reason = session.run(
        "python", "-c", WHY_ABSENT, backend, silent=True, stderr=subprocess.DEVNULL
    )
    if reason:
        session.skip(f"no {backend} here. JAX says: {str(reason).strip()}")
    run_tests(session, jax, JAX_PLATFORMS=f"{backend},cpu")


@nox.session(python=DEFAULT)
def changed(session: nox.Session) -> None:
    """Check in two minutes what a change touches: lint, types, tests; `-- --base COMMIT` compares
    with another commit.
    """
    session.install("-e", ".[examples,tests,lint,types]")
    session.run("python", "-m", "tests.changed", *session.posargs)


@nox.session(python=DEFAULT, name="again")
def again(session: nox.Session) -> None:
    """Run the core twenty times in random orders, with several numbers of workers and beside load:
    is it the same each time? It resumes.
    """
    session.install("-e", ".[examples,tests]")
    session.run("python", "-m", "tests.again", *session.posargs)


@nox.session(python=DEFAULT)
def mutations(session: nox.Session) -> None:
    """Break the source in a hundred places, one at a time: does the core notice? `-- --part 1/8`
    takes an eighth.
    """
    session.install("-e", ".[examples,tests]")
    session.run("python", "-m", "tests.mutations", *session.posargs)


@nox.session(python=DEFAULT)
def lint(session: nox.Session) -> None:
    """Check style, formatting, the direction of imports and the figures of the house; `nox -s lint
    -- --fix` mends what it can.
    """
    session.install(*EXTRAS["lint"])
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]))
    # it reads the source and imports none of it
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": "src"})
    session.run("python", "-m", "tests.house")


@nox.session(python=DEFAULT)
def types(session: nox.Session) -> None:
    """Check the source with pyright strict, and what pyright and mypy infer for decorated code."""
    session.install("-e", ".[types]")
    session.run("pyright", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    session.run("mypy")


@nox.session(python=DEFAULT)
def docs(session: nox.Session) -> None:
    """Build the site into `site/`; a broken link is an error. `nox -s docs -- serve` shows it, and
    follows changes.
    """
    # the API reference is read, not imported; ruff formats its signatures
    session.install(*EXTRAS["docs"], *EXTRAS["lint"])
    is_served = session.posargs[:1] == ["serve"]
    what = session.posargs if is_served else ["build", "--strict", *session.posargs]
    said = session.run("python", "docs/repository.py", silent=True) or ""
    # Without a known address the pages have no link.
    unset = {"JITNEY_REPOSITORY": None, "JITNEY_REPOSITORY_NAME": None}
    env = unset | dict(line.split("=", 1) for line in said.splitlines())
    session.run("zensical", what[0], "-f", "mkdocs.yml", *what[1:], env=env)


@nox.session(python=DEFAULT)
def release(session: nox.Session) -> None:
    """Build wheel and sdist, check what they say of themselves, test the wheel in empty
    environments of pip and uv. Nothing is uploaded.

    The recipe for conda is read and rendered by rattler-build, which builds it where conda's
    channels are.
    """
    out = Path(session.create_tmp()) / "dist"
    shutil.rmtree(out, ignore_errors=True)
    session.install("build", "twine", "uv", "py-rattler-build")
    session.run("python", "-c", RECIPE)
    session.run("python", "-m", "build", "--outdir", str(out))
    session.run("twine", "check", "--strict", *map(str, sorted(out.iterdir())))
    wheel = str(next(out.glob("*.whl")))
    for installer in ("pip", "uv"):
        empty = out.parent / f"empty-{installer}"
        session.run("python", "-m", "venv", "--clear", str(empty))
        python = str(empty / ("Scripts" if os.name == "nt" else "bin") / "python")
        if installer == "pip":
            session.run(python, "-m", "pip", "install", "--quiet", wheel, external=True)
        else:
            session.run("uv", "pip", "install", "--quiet", "--python", python, wheel)
        # Away from the project, whose `src` must not be what is imported, with nothing but the
        # run-time dependencies.
        with session.chdir(empty):
            session.run(python, "-c", FIRST_CALL, external=True)
            session.run(python, "-m", "jitney", "--help", external=True)


@nox.session(python=DEFAULT)
def bench(session: nox.Session) -> None:
    """Measure the figures of docs/benchmarks.md and write that page; `-- sizes stream` measures two
    rows, `-- --full` the longest too; `-- --against COMMIT` compares this tree with another commit.
    """
    session.install("-e", ".[examples,tests]")
    is_paired = any(word.split("=")[0] == "--against" for word in session.posargs)
    what = "tests.perf.commits" if is_paired else "tests.perf.page"
    session.run("python", "-m", what, *session.posargs)


@nox.session(python=DEFAULT)
def profile(session: nox.Session) -> None:
    """Profile the main job of each port at a small size: a trace, and a table of what compiles and
    what runs, in `out/profile`; `-- trf` takes one.
    """
    session.install("-e", ".[examples,tests]")
    session.run("python", "-m", "tests.perf.ports", *session.posargs)


@nox.session(python=DEFAULT)
def hunt(session: nox.Session) -> None:
    """Generate programs and compare them with plain `jax.jit`, for ten minutes; `-- --cases 64
    --seed 7` says how many and which.
    """
    session.install("-e", ".[tests]")
    session.run("python", "-m", "tests.hunt", *session.posargs)


@nox.session(python=DEFAULT)
def full(session: nox.Session) -> None:
    """Run what is too long for `.ci/run`: soaks, long fuzzing, an hour of the hunt with a fresh
    seed, full benchmarks.
    """
    session.install("-e", ".[examples,tests]")
    session.run(
        "pytest",
        "-n",
        "auto",
        "--maxprocesses=4",
        "--dist=worksteal",
        "-m",
        "",
        "--hypothesis-profile=full",
    )
    session.run("python", "-m", "tests.hunt", "--minutes", "60")
    session.run("python", "-m", "tests.soak", "--minutes", "60")
    session.run(
        "python",
        "-m",
        "tests.test_public_calls",
        "--calls",
        "60000",
        "--seed",
        str(random.randrange(10**6)),
    )
    for end in ("tests_oldest", "tests_newest"):
        session.notify(end, ["-n", "auto", "--maxprocesses=4", "--dist=worksteal"])
    session.notify("tests-verify")
    session.notify("bench", ["--full"])
