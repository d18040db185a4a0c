"""`monitor`, and what `doctor` says of GPUs. No GPU is here: stand-ins have their figures."""

import json
from types import SimpleNamespace

import pytest

from jitney._command.arguments import main
from jitney._command.machine import monitor
from jitney._command.machine.doctor import Installed, gpus, shadowing

FITS = {"jax-cuda13-plugin": "0.10.2", "jax-cuda13-pjrt": "0.10.2"}


def test_each_line_is_printed_and_kept(tmp_path, capsys):
    """Memory of the machine, and what cannot be had here by name."""
    out = tmp_path / "out.jsonl"
    typed = ["monitor", "--interval", "0.01", "--count", "2", "--out", str(out)]
    assert main(typed) == 0
    shown = capsys.readouterr()
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == len(shown.out.splitlines()) == 2
    assert 0 < records[0]["cpu"]["memory_bytes"] < records[0]["cpu"]["of_bytes"]
    assert ("gpu0" in records[0]) != ("not had: GPUs" in shown.err)


@pytest.mark.rest
def test_an_interrupt_ends_it(monkeypatch, capsys):
    """With status 0, since that is how it ends."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(monitor.time, "sleep", interrupted)
    assert main(["monitor"]) == 0


@pytest.mark.rest
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--interval", "0"], "--interval 0 is not a length"),
        (["--out", "no/such/out.jsonl"], "cannot be written"),
    ],
)
def test_what_is_not_understood_is_a_sentence(typed, said, capsys):
    """And status 2."""
    assert main(["monitor", *typed]) == 2
    assert said in capsys.readouterr().err


class Refused(Exception):
    """The error of NVML."""


def refuse(*given: object) -> None:
    raise Refused


@pytest.mark.rest
def test_a_gpu_has_what_its_driver_gives():
    """The rest is unknown."""
    nvml = SimpleNamespace(
        NVMLError=Refused,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=40),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=2**30, total=2**34),
        nvmlDeviceGetTemperature=lambda device, kind: 61,
        nvmlDeviceGetPowerUsage=refuse,
        nvmlDeviceGetCurrentClocksThrottleReasons=refuse,
    )
    figures = monitor._gpu(nvml, object())
    assert (figures["used"], figures["memory_bytes"], figures["celsius"]) == ("40%", 2**30, 61)
    assert (figures["watts"], figures["throttled"]) == (None, None)
    assert monitor._words(figures) == "used 40%, memory 1.00 GiB, of 16.00 GiB, celsius 61"


@pytest.mark.rest
@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x1, "no"), (0x20, "heat"), (0x5, "power cap"), (0x44, "power cap, heat, by hardware")],
)
def test_an_idle_gpu_is_not_throttled(bits, words):
    """NVML gives that it is idle among the reasons of slow clocks; power is in thousandths."""
    nvml = SimpleNamespace(
        NVMLError=Refused,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=0),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=2**30, total=2**34),
        nvmlDeviceGetTemperature=lambda device, kind: 41,
        nvmlDeviceGetPowerUsage=lambda device: 79511,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: bits,
    )
    figures = monitor._gpu(nvml, object())
    assert (figures["watts"], figures["throttled"]) == (80, words)


@pytest.mark.rest
def test_the_driver_on_the_library_path_shadows_nothing(tmp_path):
    """Containers have it in a folder of NVIDIA's name."""
    driver, toolkit = tmp_path / "nvidia", tmp_path / "cuda"
    for folder, name in ((driver, "libcuda.so.1"), (toolkit, "libcudart.so.12")):
        folder.mkdir()
        (folder / name).touch()
    assert shadowing(f"{driver}") == ()
    assert shadowing(f"{driver}:{toolkit}:") == (str(toolkit / "libcudart.so.12"),)


@pytest.mark.rest
def test_without_anything_all_is_named(monkeypatch, tmp_path):
    """No /proc, no sensor, neither psutil nor NVML."""
    monkeypatch.setattr(monitor, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(monitor, "_SENSORS", tmp_path)
    monkeypatch.setattr(monitor, "_module", lambda name: None)
    found = monitor.Monitor()
    assert len(found.unknown) == 3
    assert found.read()["cpu"]["used"] is None


@pytest.mark.rest
@pytest.mark.parametrize(
    ("here", "said", "fix"),
    [
        (Installed(None, "0.10.2"), "no CUDA plugin", ""),
        (Installed("580.65", "0.10.2", FITS), "driver 580.65", ""),
        (
            Installed("580.65", "0.10.3", FITS),
            "0.10.2 beside jaxlib 0.10.3",
            'python -m pip install --upgrade "jax[cuda13]"',
        ),
        (
            Installed("550.1", "0.10.2", FITS),
            "needs a driver from 580 on",
            'python -m pip install --upgrade "jax[cuda12]"',
        ),
        (Installed("470.1", "0.10.2", FITS), "needs a driver from 580 on", "update the driver"),
        (
            Installed("580.65", "0.10.2", {"jax-cuda13-plugin": "0.10.2"}),
            "jax-cuda13-pjrt is missing",
            'python -m pip install --upgrade "jax[cuda13]"',
        ),
        (
            Installed("580.65", "0.10.2", {**FITS, "jax-cuda12-plugin": "0.10.2"}),
            "CUDA 12 and 13 at once",
            "python -m pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt",
        ),
        (
            Installed("580.65", "0.10.2", FITS, ("/usr/local/cuda/lib64/libcudart.so.12",)),
            "as /usr/local/cuda/lib64/libcudart.so.12",
            "take /usr/local/cuda/lib64 off LD_LIBRARY_PATH",
        ),
    ],
)
def test_versions_that_do_not_fit_are_named(here, said, fix):
    """With the line that mends it."""
    check = gpus(here)
    assert said in check.value
    assert (check.fix, check.state) == (fix, "warn" if fix else "ok")
