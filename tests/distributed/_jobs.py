"""What the processes of the tests run: `python -m tests.distributed._jobs NAME ARGUMENTS`."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import jitney

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def tell(**what):
    print(json.dumps(what), flush=True)


def error_of(call):
    try:
        call()
    except jitney.JitneyError as error:
        return str(error)
    return ""


@jitney.optimize(shard={"batch": "data"})
def loss(
    x: Float[Array, "batch n"], w: Float[Array, "n m"], mode: Any = "mean"
) -> Float[Array, ""]:
    y = jnp.tanh(x @ w)
    return jnp.mean(y**2) if mode == "mean" else jnp.sum(y**2)


@jitney.optimize(shard={"batch": "data"})
def branches(x: Float[Array, "batch n"]) -> Float[Array, ""]:
    return jnp.sum(x) if jax.process_index() else jnp.max(x)


def product(x: Float[Array, "batch n"], w: Float[Array, "n m"]) -> Float[Array, "batch m"]:
    return x @ w


def part(whole):
    """This process's rows."""
    rows = len(whole) // jax.process_count()
    return whole[jax.process_index() * rows :][:rows]


def basics():
    """What agrees, and what differs; every process compares the same number of times."""
    processes = jitney.processes.distributed()
    i = processes.index
    tell(
        printed=str(processes),
        index=i,
        count=processes.count,
        again=error_of(jitney.processes.distributed),
    )
    with jitney.mesh(data=-1) as mesh:
        x = jitney.processes.from_processes(part(X), "data")
        tell(
            mesh=dict(mesh.shape),
            shape=x.shape,
            loss=float(loss(x, W)),
            grad=np.asarray(loss.grad(x, W, wrt="w")).tolist(),
        )
        tell(whole=float(loss(jnp.asarray(X), W)), traces=loss.stats.traces)
        tell(numpy=error_of(lambda: loss(X[:4], W)))
        small = jitney.processes.from_processes(part(X[:4]), "data")
        tell(value=error_of(lambda: loss(small, W + i)))
        tell(static=error_of(lambda: loss(small, W, mode="mean" if i else "sum")))
        names = frozenset("abcdefghijkl")  # written in another order by each process
        tell(sets=[float(loss(small, W, mode=mode)) for mode in (names, ("sum", names))])
        tell(
            ragged=error_of(
                lambda: jitney.processes.from_processes(np.ones((4 + 4 * i, 5), np.float32), "data")
            )
        )
        tell(program=error_of(lambda: branches(x)))
        rules = {"batch": "data"} if i else {"batch": "data", "m": "data"}
        tell(rule=error_of(lambda: jitney.optimize(product, shard=rules)(x, jnp.asarray(W))))
        tell(
            pad=error_of(
                lambda: jitney.optimize(product, shard={"batch": "data"}, pad={"batch": "pow2"})(
                    x, W
                )
            )
        )
    alone = jitney.optimize(lambda x: jnp.sum(x) * (i + 1))
    tell(alone=float(alone(X[: i + 1])), expected=float(np.sum(X[: i + 1]) * (i + 1)))
    with jitney.mesh(data=-1, devices=jax.local_devices()):
        tell(local=float(loss(X, W + i)), compiles=loss.stats.compiles)


def energy(x: Float[Array, "batch n"]) -> Float[Array, ""]:
    return jnp.sum(x**2)


def remedied():
    """Errors of several processes, and what follows from doing what each says."""
    index = int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], 2, index)
    with jitney.mesh(data=-1):
        whole = jnp.asarray(X)
        tell(untold=error_of(lambda: loss(whole, W)))
    jitney.processes.distributed()
    with jitney.mesh(data=-1):
        x = jitney.processes.from_processes(part(X), "data")
        tell(
            told=float(loss(whole, W)),
            of_host=error_of(lambda: loss(X, W)),
            of_parts=float(loss(x, W)),
            of_whole=float(loss(jnp.asarray(X), W)),
            twice=error_of(lambda: jitney.processes.from_processes(x, "data")),
            as_it_is=float(loss(x, W)),
        )
        padded = jitney.optimize(energy, shard={"batch": "data"}, pad={"batch": "pow2"})
        second = jitney.optimize(energy, shard={"batch": "data"})
        tell(
            padded=error_of(lambda: padded(x)),
            not_padded=float(second(x)),
            streamed=error_of(lambda: jitney.stream(second, X, chunk={"batch": 2})),
        )
    with jitney.mesh(data=-1, devices=jax.local_devices()):
        mine = {"x": part(X)}
        tell(
            of_own=float(jitney.stream(second, **mine, chunk={"batch": 2}, progress=False).result),
            own=float(np.sum(part(X) ** 2)),
        )


def correlations(folder):
    """One fit of `examples/homodyne`, each process with its part of the points; and one that starts
    elsewhere in each.
    """
    from examples.homodyne import Data, Together, fit_mode
    from examples.homodyne.processes import fitted, measurement

    together = Together(jitney.processes.distributed())
    data = Data(Path(folder), **json.loads(Path(folder, "own.json").read_text()))
    own = measurement(data, together.rows(data.pairs))
    for way in ("whole", "streamed"):
        found = fitted(own, way, together=together)
        tell(**{way: [value.hex() for value in map(float, found.x)], f"{way}_points": found.points})
    start = {"D0": 1e4 + together.processes.index}
    try:
        fit_mode("static_isotropic", own, start=start, together=together)
    except ValueError as error:
        tell(refused=str(error))


def ports():
    """Fits and draws, of which each process has its part on its own devices; and steps of training
    on the devices of all.
    """
    from . import _ports

    index, of = jitney.processes.distributed().index, jax.process_count()
    rows = slice(index * _ports.ROWS // of, (index + 1) * _ports.ROWS // of)
    with jitney.mesh(rows=-1, devices=jax.local_devices()):
        fits, draws = _ports.fitted(rows), _ports.swept(rows)
    with jitney.mesh(data=-1):
        steps = _ports.trained(
            lambda arrays: jitney.processes.from_processes(jax.tree.map(part, arrays), "data")
        )
    found = {"fits": fits, "draws": draws, "steps": steps}
    tell(**{name: _ports.as_text(each) for name, each in found.items()})


def apart(first, second, **options):
    """Process 1 does another thing than process 0, which nobody catches."""
    with jitney.processes.distributed(**options), jitney.mesh(data=-1):
        x = jitney.processes.from_processes(part(X), "data")
        small, narrow = x[:4], x[4:8, :2]
        jax.block_until_ready((loss(x, W), small, narrow))
        here = {"x": x, "small": small, "narrow": narrow}
        if jax.process_index() == 0:
            eval(first, globals(), here)
        else:
            eval(second, globals(), here)
        tell(done=True)


def stray(x):
    """Wait for a step that no other process takes."""
    float(loss(x, W))


class Net(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear
    act: Callable = jnp.tanh

    def __call__(self, x):
        return self.last(self.act(self.first(x)))


OPTIMISER = optax.adam(1e-2)
SHARD = ("fsdp", {"batch": "data"})


@jitney.optimize(shard=SHARD, donate=("model", "state"))
def update(model: Net, state: Any, x: Float[Array, "batch n"]) -> tuple[Net, Any, Float[Array, ""]]:
    def error(model):
        return jnp.mean((jax.vmap(model)(x) - jnp.sin(x)) ** 2)

    value, grad = eqx.filter_value_and_grad(error)(model)
    change, state = OPTIMISER.update(grad, state)
    return eqx.apply_updates(model, change), state, value


def begun():
    """The model and the state of its optimiser, before the first step."""
    keys = jax.random.split(jax.random.key(0))
    model = Net(eqx.nn.Linear(4, 8, key=keys[0]), eqx.nn.Linear(8, 4, key=keys[1]))
    return model, OPTIMISER.init(eqx.filter(model, eqx.is_array))


def rows(step):
    """All rows of a step, whoever reads them."""
    return np.random.default_rng(step).standard_normal((8, 4)).astype(np.float32)


def train(folder, steps, victim=-1, at=-1, spread=False, **options):
    """Train, save every second step, and perhaps be killed."""
    jitney.processes.distributed(**options)
    checkpoints = jitney.processes.Checkpoints(folder)
    with jitney.mesh(data=-1):
        like = begun()
        if spread:  # nothing is read but each device's part
            like = jitney.place(eqx.filter_eval_shape(lambda: like), shard=SHARD)
        step, (model, state) = checkpoints.restore(like)
        tell(resumed=step, local=len(model.first.weight.sharding.device_set))
        losses = []
        while step < steps:
            model, state, value = update(
                model, state, jitney.processes.from_processes(part(rows(step)), "data")
            )
            losses.append(float(value))
            step += 1
            tell(step=step)
            if step % 2 == 0:
                checkpoints.save(step, (model, state))
            if step == at and jax.process_index() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
        tell(
            losses=losses,
            traces=update.stats.traces,
            compiles=update.stats.compiles,
            hits=update.stats.persistent_hits,
        )


def cut(folder):
    """Be killed while a checkpoint is written."""
    checkpoints = jitney.processes.Checkpoints(folder)
    checkpoints.save(1, {"w": np.full(1 << 20, 1.0)})

    def watch():
        while not any("2" in path.name for path in Path(folder).iterdir()):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    checkpoints.save(2, {"w": np.full(1 << 22, 2.0)})


def killed(victim, grace):
    """One process is killed at its third step."""
    jitney.processes.distributed(grace=grace)
    with jitney.mesh(data=-1):
        x = jitney.processes.from_processes(part(X), "data")
        for step in range(1000):
            float(loss(x, W))
            tell(step=step)
            if step == 3 and jax.process_index() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)


def lonely():
    """Wait for one that does not come."""
    os.environ["JAX_NUM_PROCESSES"] = "2"
    jitney.processes.distributed(timeout=1.0)


def beginnings():
    """What a process alone is told."""
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        address = (
            os.environ.pop(name) if name.endswith("ADDRESS") else os.environ.pop(name) and address
        )
    began = time.monotonic()
    tell(
        unreachable=error_of(lambda: jitney.processes.distributed(address, 2, 1, timeout=1.0)),
        waited=time.monotonic() - began,
    )
    tell(missing=error_of(lambda: jitney.processes.distributed(address)))
    processes = jitney.processes.distributed()
    tell(count=processes.count, printed=str(processes))
    with jitney.mesh(data=-1):
        tell(loss=float(loss(jitney.processes.from_processes(X, "data"), W)))


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
