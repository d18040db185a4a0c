"""What the first call takes in a fresh process: without any cache, with compiled programs kept, with
`cache="program"`, and with a program of `jax.export` by hand.

Run from the project's root: `python -m tests.perf.starts [PROBLEM ...]`. Five processes each, in
turn, after one that fills the folder. Wall and CPU seconds of the first call, behind the imports
and the start of the backend, and CPU seconds of all that the process did until then; of "imports"
it ends before the call, so that is the floor. Bytecode is written, as where jitney is installed.

By hand the first process writes the program of the same arrays to a file, and the next one reads it
and calls it without the function, with JAX's own persistent cache (`by_hand`). Nothing there sees
whether the code has changed since. Results of all ways are compared before any time is printed.
"""

from __future__ import annotations

import inspect
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from examples._figures import record
from examples._lines import lines_of

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "5"))
MODES = {
    "imports": (True, "on"),
    "cold": (True, "off"),
    "compiled": (True, "on"),
    "program": ("program", "on"),
}
HAND = "by hand"
WAYS = (*MODES, HAND)
# JAX exports no callbacks, and so no run-time checks
NOT_BY_HAND = ("solver",)


def layers() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of eight layers, one written behind the other."""
    import jax
    import jax.numpy as jnp

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jax.nn.gelu(x @ weight)
        return jnp.mean(x**2)

    return jax.grad(loss), ([jnp.ones((32, 32)) / 32] * 8, jnp.ones((16, 32)))


def module() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One step of Adam on an Equinox MLP of eight layers."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    adam = optax.adam(1e-3)

    def loss(model: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(model)(x) ** 2)

    def step(model: Any, state: Any, x: Any) -> Any:
        gradient = eqx.filter_grad(loss)(model, x)
        updates, state = adam.update(gradient, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state

    model = eqx.nn.MLP(8, 1, 32, 8, key=jax.random.key(0))
    return step, (model, adam.init(eqx.filter(model, eqx.is_inexact_array)), jnp.ones((16, 8)))


def ode() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of a neural ODE that diffrax solves with `throw=False`, sixteen trajectories."""
    import diffrax
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class Field(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, t: Any, y: Any, args: Any) -> Any:
            return self.mlp(y)

    def loss(field: Field, y0: Any) -> Any:
        def solved(y: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.1, y, throw=False
            ).ys

        return jnp.mean(jax.vmap(solved)(y0) ** 2)

    field = Field(eqx.nn.MLP(2, 2, 16, 2, key=jax.random.key(0)))
    return eqx.filter_grad(loss), (field, jnp.ones((16, 2)))


def solver() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A trajectory of a linear field, by diffrax with `throw=True`: it holds run-time checks."""
    import diffrax
    import jax.numpy as jnp

    def solved(y: Any, rate: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, args=rate).ys

    return solved, (jnp.ones(16), jnp.ones(16))


def trf() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A fit of a NIST set, of `examples/trf`."""
    import numpy as np

    from examples.trf._curve import Residual
    from examples.trf._problem import Data, Setup
    from examples.trf._program import programs
    from examples.trf.nist import load

    reference = load("Misra1a")
    setup = Setup(
        Residual(reference.model, "no"),
        None,
        "linear",
        bounded=False,
        scale_by_jac=False,
        records=None,
    )
    controls = np.array([1e-8, 1e-8, 1e-8, 1.0, 300.0])
    data = Data(None, None, None, controls, None, (reference.x, reference.y, None), {})
    return (
        programs(setup).fit.__wrapped__,
        (np.asarray(reference.starts[1], np.float64), data),
        {"precision": "f64"},
    )


def surrogate() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A padded step of training, of `examples/surrogate`."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from examples.surrogate._expert import batch
    from examples.surrogate._step import PAD, Recipe, start, step_of
    from examples.surrogate.model import Surrogate

    recipe = Recipe()
    model = Surrogate(16, key=jax.random.key(0))
    arrays = tuple(map(jnp.asarray, batch(np.random.default_rng(8), 8, 5, 32).arrays))
    return step_of(recipe).__wrapped__, (model, start(recipe, model), *arrays), {"pad": PAD}


def posterior() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The exact posterior of `examples/surrogate`: a padded gradient, of a function that remembers
    tables.
    """
    import numpy as np

    from examples.surrogate._expert import log_sum

    options = {
        "vmap": "example",
        "pad": {"example": [32, 256, 1024]},
        "precision": "f64",
        "gradient": True,
    }
    return log_sum.__wrapped__, (np.random.default_rng(5).normal(size=(20, 5, 15)),), options


def homodyne() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The products of two angles in chunks, of `examples/homodyne`."""
    import numpy as np

    from examples.homodyne._fit import CHUNK, START
    from examples.homodyne.model import Setup, gram

    rng = np.random.default_rng(0)
    first = rng.uniform(1.0, 2.0, 4 * CHUNK).astype(np.float32)
    second = first + rng.uniform(0.1, 1.0, first.shape).astype(np.float32)
    measured = np.ones((2, first.size), np.float32)
    arguments = (START, Setup(), np.zeros(2, np.float32), first, second, measured)
    return (
        gram,
        arguments,
        {
            "vmap": {"phi": {"phi": 0, "measured": 0}},
            "precision": "f64",
            "chunk": {"points": CHUNK},
        },
    )


def streamed() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The same products, through `jitney.stream`."""
    gram, arguments, options = homodyne()
    chunk = options.pop("chunk")
    return gram, arguments, {**options, "stream": chunk}


def steady() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The steady state of fourteen sectors, of `examples/equilibrium`. Its equations are traced
    before, as a part of the model.
    """
    import jax

    from examples.equilibrium._calibration import calibration
    from examples.equilibrium._steady import program
    from examples.equilibrium.models.sectors import model

    sectors = model()
    with jax.enable_x64(True):
        arguments = (sectors.theta(sectors.params), calibration(sectors, {}), *sectors.guess)
        return program(sectors).__wrapped__, arguments, {"precision": "f64"}


def path() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A path of 41 dates of the same sectors."""
    import jax
    import numpy as np

    from examples.equilibrium._path import program
    from examples.equilibrium.models.sectors import model

    sectors = model()
    (u, x), z = sectors.guess, np.zeros((41, sectors.sizes["z"]))
    end = (u, x, np.zeros((u.size, x.size)), np.zeros((u.size, z.shape[1])))
    with jax.enable_x64(True):
        arguments = (sectors.theta(sectors.params), end, x, z, np.tile(np.hstack([u, x]), (40, 1)))
        return program(sectors).__wrapped__, arguments, {"precision": "f64"}


PROBLEMS: dict[str, Callable[[], Any]] = {
    "layers": layers,
    "module": module,
    "ode": ode,
    "solver": solver,
    "trf": trf,
    "surrogate": surrogate,
    "posterior": posterior,
    "homodyne": homodyne,
    "streamed": streamed,
    "steady": steady,
    "path": path,
}


def by_hand(
    fn: Callable[..., Any], file: Path, *arrays: Any, wide: AbstractContextManager[Any]
) -> list[Any]:
    """What one writes without jitney: a program from its file, which the first process writes."""
    import jax

    with wide:
        if not file.exists():
            file.write_bytes(jax.export.export(jax.jit(fn))(*arrays).serialize())
        loaded = jax.export.deserialize(bytearray(file.read_bytes()))
        return jax.jit(loaded.call)(*arrays)


def plain(
    fn: Callable[..., Any], arguments: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """The function of a problem in plain JAX, from arrays to arrays, at exact size and at once."""
    import jax
    import numpy as np

    if "vmap" in given:
        mapped = given["vmap"]
        names = inspect.signature(fn).parameters
        axes = tuple(mapped["phi"].get(name) for name in names) if isinstance(mapped, dict) else 0
        inner = jax.grad(fn) if given.get("gradient") else fn
        fn = lambda *values: jax.vmap(inner, axes)(*values)
    leaves, tree = jax.tree.flatten(arguments)
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def of_arrays(*arrays: Any) -> list[Any]:
        every = list(leaves)
        for i, array in zip(at, arrays, strict=True):
            every[i] = array
        return numbers(fn(*jax.tree.unflatten(tree, every)))

    wide = "precision" in given
    arrays = [np.asarray(leaves[i]) for i in at]
    return of_arrays, [
        each.astype(np.float64) if wide and each.dtype.kind == "f" else each for each in arrays
    ]


def numbers(tree: Any) -> list[Any]:
    """The arrays of a result."""
    import jax
    import numpy as np

    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, (jax.Array, np.ndarray))]


def measure_by_hand(problem: str, folder: str) -> None:
    """The first call of this process, of a program that another one has written."""
    import contextlib

    import jax
    import jax.numpy as jnp

    fn, arguments, *options = PROBLEMS[problem]()
    given = dict(*options)
    program, arrays = plain(fn, arguments, given)
    wide = jax.enable_x64(True) if "precision" in given else contextlib.nullcontext()
    jax.block_until_ready(jnp.sin(jnp.ones(3)))
    wall, cpu = time.perf_counter(), time.process_time()
    out = by_hand(program, Path(folder) / problem, *arrays, wide=wide)
    jax.block_until_ready(out)
    print(time.perf_counter() - wall, time.process_time() - cpu, time.process_time(), 0)
    save(out, folder, problem, HAND)


def save(out: Sequence[Any], folder: str, problem: str, mode: str) -> None:
    """Keep results for comparing."""
    import numpy as np

    np.savez(f"{folder}/{problem} {mode}.npz", *map(np.asarray, out))


def compare(problem: str, folder: str) -> None:
    """Compare the results of all ways, in the order of their arrays.

    Raises:
        AssertionError: Two differ by more than rounding of float32.
    """
    import numpy as np

    kept = {file.stem: np.load(file) for file in Path(folder).glob(f"{problem} *.npz")}
    first = kept.pop(f"{problem} compiled")
    for each in kept.values():
        assert each.files == first.files
        for name in each.files:
            a, b = each[name], first[name]
            largest = np.abs(b).max(initial=0) if b.dtype.kind in "fc" else 0
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * largest)


def measure(problem: str, mode: str, folder: str) -> None:
    """The first call of this process."""
    if mode == HAND:
        measure_by_hand(problem, folder)
        return
    import jax
    import jax.numpy as jnp

    import jitney

    fn, arguments, *options = PROBLEMS[problem]()
    given = dict(*options)
    gradient, chunk = given.pop("gradient", False), given.pop("stream", None)
    made = jitney.optimize(cache=MODES[mode][0], **given)(fn)
    program = made.grad if gradient else made
    run = program if chunk is None else partial(in_stream, program, chunk)
    jax.block_until_ready(jnp.sin(jnp.ones(3)))
    wall, cpu = time.perf_counter(), time.process_time()
    out: Any = ()
    if mode != "imports":
        out = run(*arguments)
        jax.block_until_ready(jax.tree.leaves(out))
    print(
        time.perf_counter() - wall,
        time.process_time() - cpu,
        time.process_time(),
        made.stats.traces,
    )
    if mode != "imports":
        save(numbers(out), folder, problem, mode)
    if mode != "imports" and chunk is None:
        told = [
            line.why for line in program.plan(*arguments).lines if line.name == "cached program"
        ]
        print(made.stats.traces, *told, file=sys.stderr)


def in_stream(program: Any, chunk: Any, *arguments: Any) -> Any:
    """What a stream over arrays in memory gives, after its last chunk."""
    import jitney

    data = dict(zip(inspect.signature(program).parameters, arguments, strict=True))
    value, stats = jitney.stream(program, **data, chunk=chunk, progress=False)
    print(stats.kept, file=sys.stderr)
    return value


def run(problem: str, mode: str, folder: str) -> tuple[float, ...]:
    """A process of its own."""
    env = {**os.environ}
    if mode == HAND:
        env["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/jax"
        env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        env["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        env["JITNEY_CACHE"] = "off"
    else:
        env |= {"JITNEY_CACHE": MODES[mode][1], "JITNEY_CACHE_DIR": f"{folder}/jitney"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.perf.starts", problem, mode, folder],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return tuple(map(float, done.stdout.split()))


def main() -> None:
    """All problems, in turn."""
    found: dict[str, dict[str, float]] = {}
    for problem in sys.argv[1:] or PROBLEMS:
        found[problem] = {}
        ways = [way for way in WAYS if way != HAND or problem not in NOT_BY_HAND]
        with tempfile.TemporaryDirectory() as folder:
            for mode in ways:
                if mode not in ("imports", "cold"):
                    run(problem, mode, folder)
            taken: dict[str, list[tuple[float, ...]]] = {mode: [] for mode in ways}
            for _ in range(ROUNDS):
                for mode, times in taken.items():
                    times.append(run(problem, mode, folder))
            compare(problem, folder)
        for mode, times in taken.items():
            wall, cpu, whole, traces = (
                statistics.median(column) for column in zip(*times, strict=True)
            )
            first = f"{wall:6.2f} s of wall, {cpu:6.2f} s of CPU, {traces:.0f} traces"
            print(f"{problem:9} {mode:9} {first}; {whole:6.2f} s of CPU in all", flush=True)
            found[problem][mode] = cpu
    print(f"lines of code by hand: {lines_of(sys.modules[__name__], 'by_hand')}, and one a setting")
    record(cpu=found)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] in WAYS:
        measure(*sys.argv[1:])
    else:
        main()
