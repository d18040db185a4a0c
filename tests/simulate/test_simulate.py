"""`jitney.simulation.simulate` on one device: how counts go with the number of devices, the model of time, and
what is refused.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, BFloat16, Float

import jitney
from tests._patience import patience

DEVICE = jitney.simulation.Device(
    "toy",
    memory=4096,
    bandwidth=1e6,
    peak={"f32": 1e6, "bf16": 4e6},
    vector=1e5,
    group=4,
    link=1e6,
    network=1e5,
    link_latency=1e-3,
    network_latency=1e-2,
)
ROWS, N, M = 4096, 16, 8


@jitney.optimize(shard={"batch": "data"})
def loss(w: Float[Array, "n m"], x: Float[Array, "batch n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.tanh(x @ w))


@pytest.fixture(scope="module")
def sweep():
    meshes = [{"data": count} for count in (8, 64, 2048)]
    return jitney.simulation.simulate(
        loss.grad, sizes={"batch": ROWS, "n": N, "m": M}, mesh=meshes, device=DEVICE, wrt="w"
    )


@pytest.mark.rest
def test_operations_of_a_device_go_with_its_part_of_the_batch(sweep):
    """Two products, forward and backward, with two operations for each multiplied number."""
    assert [found.products for found in sweep] == [
        {"f32": 2 * 2 * ROWS // count * N * M} for count in (8, 64, 2048)
    ]


@pytest.mark.rest
def test_what_is_summed_over_the_batch_does_not_depend_on_the_number_of_devices(sweep):
    """The gradient, once."""
    sums = [[(each.kind, each.along, each.bytes) for each in found.collectives] for found in sweep]
    assert sums == [[("all-reduce", ("data",), 4 * N * M)]] * 3


def test_arguments_are_divided_as_they_are_laid(sweep):
    """The batch; the weights are whole everywhere."""
    assert [found.arguments for found in sweep] == [
        4 * (N * M + ROWS * N // count) for count in (8, 64, 2048)
    ]


def test_times_are_those_of_the_model(sweep):
    """By hand: eight devices in two nodes of four, each of the four with its own port."""
    found = sweep[0]
    rest = found.flops - found.products["f32"]
    compute = found.products["f32"] / 1e6 + rest / 1e5
    sent = 2 * 7 / 8 * 4 * N * M / (4 * 1e5) + 2 * 3 * 1e-2
    assert found.times == pytest.approx(
        {"compute": compute, "memory": found.accessed / 1e6, "communication": sent}
    )
    assert found.step == pytest.approx(max(compute, found.accessed / 1e6) + sent)
    assert found.overlapped == pytest.approx(max(compute, found.accessed / 1e6, sent))


def test_what_does_not_fit_says_what_takes_the_most(sweep):
    """And what to do."""
    assert not sweep[0].fits
    text = " ".join(str(sweep[0]).split())
    assert "does not fit 4 KiB" in text
    assert "data=2048" in str(sweep)


@pytest.mark.rest
def test_sixteen_bits_are_sent_and_multiplied_as_such():
    """The compiler for CPUs, which counts, widens them."""

    @jitney.optimize(shard={"batch": "data"})
    def low(
        x: BFloat16[Array, "batch n"],
    ) -> tuple[BFloat16[Array, "batch all"], BFloat16[Array, "n n"]]:
        return x @ x.T, x.T @ x

    found = jitney.simulation.simulate(
        low, sizes={"batch": 64, "n": N}, mesh={"data": 8}, device=DEVICE
    )
    assert list(found.products) == ["bf16"]
    assert {each.kind: each.bytes for each in found.collectives} == {
        "all-gather": 2 * 64 * N,
        "all-reduce": 2 * N * N,
    }
    assert "upper bounds" in " ".join(found.notes)


@pytest.mark.rest
def test_what_is_computed_anew_is_counted_again():
    """Forward two products a layer but in the last, whose value nobody asks for; one anew; backward
    four, but one of the first layer's.
    """

    @jitney.optimize
    def deep(w: Float[Array, "n n"], x: Float[Array, "batch n"]) -> Float[Array, ""]:
        for _ in range(3):
            x = jax.checkpoint(lambda w, x: x + jnp.tanh(x @ w) @ w)(w, x)
        return jnp.sum(x)

    found = jitney.simulation.simulate(
        deep.grad, sizes={"batch": 8, "n": 4}, device=DEVICE, wrt="w"
    )
    assert found.products == {"f32": (2 * 2 + 3 + 4 * 3 - 1) * 2 * 8 * 4 * 4}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"device": "h20"},
            jitney.errors.OptionError,
            "device='h20' is not known.*did you mean 'h200'",
        ),
        ({"mesh": {"data": 0}}, jitney.errors.MeshError, "is not a layout"),
        ({"mesh": []}, jitney.errors.MeshError, "is not a layout"),
        ({"mesh": {"data": 4096}}, jitney.errors.MeshError, "at most 2048 virtual devices"),
        ({"mesh": {"dat": 8}}, jitney.errors.MeshError, "the mesh does not have"),
        (
            {"mesh": {"data": 3}},
            jitney.errors.MeshError,
            "the 3 devices along 'data' do not divide",
        ),
        ({"mesh": None}, jitney.errors.MeshError, "has no mesh"),
        ({"sizes": {"batch": 8}}, jitney.errors.ContractError, "axis 'n' has no size"),
    ],
)
def test_what_cannot_be_simulated_says_so(options, kind, message):
    """Before anything is compiled."""
    given = {
        "device": "h100",
        "mesh": {"data": 8},
        "sizes": {"batch": 64, "n": N, "m": M},
    } | options
    with pytest.raises(kind) as caught:
        jitney.simulation.simulate(loss, **given)
    caught.match(f"(?s){message}")


def test_a_function_that_is_not_sharded_has_one_device():
    """Several would all do the same."""
    with pytest.raises(jitney.errors.OptionError, match="not sharded, and the mesh has 8 devices"):
        jitney.simulation.simulate(
            jitney.optimize(lambda x: x), np.ones(3), mesh={"data": 8}, device="h100"
        )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            lambda x: eqx.error_if(x, jnp.any(x + jax.new_ref(x)[...] < 0), "negative"),
            "keeps its callback.*EQX_ON_ERROR=nan",
        ),
        (
            lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
            "calls back into Python",
        ),
    ],
)
def test_callbacks_are_refused(body, message):
    """They cannot be handed to another process."""
    with pytest.raises(jitney.errors.OptionError) as caught:
        jitney.simulation.simulate(jitney.optimize(body), np.ones(3, np.float32), device="h100")
    caught.match(f"(?s){message}")


@pytest.mark.rest
def test_run_time_checks_are_numbers():
    """On devices too; the products are those of the function without them."""

    def product(x: Float[Array, "n k"], w: Float[Array, "k m"]) -> Float[Array, ""]:
        return jnp.sum(eqx.error_if(x, jnp.any(x < 0), "negative") @ w)

    program = jitney.optimize(shard={"n": "data"})(product)
    simulated = jitney.simulation.simulate(
        program, sizes={"n": 64, "k": 16, "m": 32}, mesh={"data": 8}, device="h100"
    )
    assert simulated.products == {"tf32": 2 * 8 * 16 * 32}
    assert any("run-time checks" in note for note in simulated.notes)


def test_what_cannot_be_compiled_says_so(monkeypatch):
    """With what the other process said last."""
    monkeypatch.setattr("sys.executable", "false")
    with pytest.raises(
        jitney.errors.MeshError,
        match="could not be compiled for 8 virtual devices: it ended with 1",
    ):
        jitney.simulation.simulate(
            loss, sizes={"batch": 64, "n": N, "m": M}, mesh={"data": 8}, device="h100"
        )


def test_a_plain_function_is_no_program():
    """Nothing names its axes."""
    with pytest.raises(jitney.errors.OptionError, match="is not a program"):
        jitney.simulation.simulate(len, device="h100")  # pyright: ignore


def test_a_device_with_a_wrong_figure_is_refused():
    """Rather than divide by it."""
    with pytest.raises(jitney.errors.OptionError, match="unknown type 'bf8'"):
        jitney.simulation.Device("mine", 1, 1.0, {"bf8": 1.0}, 1.0)
    with pytest.raises(jitney.errors.OptionError, match="not above 0"):
        jitney.simulation.Device("mine", 1, 0.0, {"bf16": 1.0}, 1.0)


def test_memory_is_refused():
    """A chunk that fits is found by compiling for devices that are there."""

    @jitney.optimize(shard={"n": "data"}, memory="10KiB")
    def f(x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.sum(x**2)

    with pytest.raises(
        jitney.errors.OptionError, match=r'(?s)the devices are not there.*chunk=\{"n"'
    ):
        jitney.simulation.simulate(f, sizes={"n": 4096, "k": 4}, mesh={"data": 8}, device="h100")


PARENT = """
import sys, time
import jax.numpy as jnp
import jitney
from jitney._simulate import other_process
from jaxtyping import Array, Float

@jitney.optimize
def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sin(x)

answers = other_process._ask
other_process._ask = lambda other, content: (print(other.pid, flush=True), answers(other, content))[1]
jitney.simulation.simulate(f, sizes={"n": 10}, device="h200")
print("over", flush=True)
"""


@pytest.mark.rest
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks whether a process lives")
@pytest.mark.parametrize("killed", [True, False])
def test_nothing_is_left_behind(tmp_path, killed):
    """Neither the process that compiles nor its folder, though the one that asked for it is
    killed.
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path), "JITNEY_CACHE": "off"}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        other = int(parent.stdout.readline())
        if killed:
            end = time.monotonic() + patience(60)
            while not list(tmp_path.iterdir()) and time.monotonic() < end:
                pass
            parent.send_signal(signal.SIGKILL)
        assert parent.stdout.readline() == ("" if killed else "over\n")
    end = time.monotonic() + patience(60)
    while (_lives(other) or list(tmp_path.iterdir())) and time.monotonic() < end:
        pass
    assert not _lives(other)
    assert not list(tmp_path.iterdir())


def _lives(process):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
