"""`monitor`: utilisation, memory and temperature of the machine at an interval.

Figures of GPUs are those of NVML, through nvidia-ml-py (tried on an H200, driver 580).
Those of the machine come from Linux's `/proc` and `/sys`, or from psutil. What cannot be had is
named once, at the beginning.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TextIO, cast

from ..._errors import OptionError
from ..._host.limits import host_memory
from ..._text.json import Data

_WHERE = "python -m jitney monitor"
_STAT = Path("/proc/stat")
_SENSORS = Path("/sys/class/thermal")
# Columns of `/proc/stat` in which a core is idle: idle, and waiting for a disk.
_IDLE = (3, 4)
# NVML's `nvmlClocksEventReasons`. An idle GPU (1) and clocks that an application asked for (2) are
# no throttling.
_SLOWED = {
    0x4: "power cap",
    0x8: "hardware",
    0x10: "sync boost",
    0x20: "heat",
    0x40: "heat, by hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
_INSTALL = 'python -m pip install "jitney[monitor]"'


def carry_out(given: argparse.Namespace) -> int:
    """Print a line at each interval, and write it to a file if one is named, until Ctrl-C."""
    if not 0 < given.interval < float("inf"):
        raise OptionError(
            _WHERE,
            f"--interval {given.interval:g} is not a length of time.",
            "It is a positive number of seconds.",
            "write --interval 1.",
            code="J205",
        )
    with ExitStack() as stack:
        out = None if given.out is None else stack.enter_context(_opened(given.out))
        monitor = Monitor()
        for text in monitor.unknown:
            sys.stderr.write(f"not had: {text}\n")
        left = given.count
        try:
            while left is None or left > 0:
                # The first interval is before the first line: utilisation is over a time.
                time.sleep(given.interval)
                _show(monitor.read(), out)
                left = None if left is None else left - 1
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


def _opened(name: str) -> TextIO:
    try:
        return Path(name).open("a", encoding="utf-8")
    except OSError as error:
        raise OptionError(
            _WHERE,
            f"--out {name} cannot be written ({error.strerror or error}).",
            "A line of JSON is appended to it at each interval.",
            "name a file in a folder that you may write.",
            code="J205",
        ) from error


def _show(record: Data, out: TextIO | None) -> None:
    parts = [time.strftime("%H:%M:%S", time.localtime(record["time"]))]
    parts += [f"{name}: {_words(record[name])}" for name in record if name != "time"]
    sys.stdout.write("  ".join(parts) + "\n")
    sys.stdout.flush()
    if out is not None:
        out.write(json.dumps(record) + "\n")
        # Whoever follows the file sees the line now.
        out.flush()


def _words(figures: Data) -> str:
    words: list[str] = []
    for name, value in figures.items():
        if name.endswith("bytes") and value is not None:
            words.append(f"{name.removesuffix('_bytes')} {value / 2**30:.2f} GiB")
        elif value is not None:
            words.append(f"{name} {value}")
    return ", ".join(words)


@dataclass
class Monitor:
    """Reader of the figures of this machine.

    Attributes:
        unknown: What cannot be had here, each with the reason.
    """

    unknown: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._psutil = _module("psutil")
        self._busy = self._cpu_times()
        if self._busy is None:
            self.unknown.append(f"utilisation of the CPU, without /proc and psutil: {_INSTALL}")
        if self._temperature() is None:
            self.unknown.append("temperature of the CPU: no sensor that this system shows")
        self._nvml, why = _nvml()
        if self._nvml is None:
            self.unknown.append(f"GPUs: {why}")

    def read(self) -> Data:
        """Return the figures since the last reading as plain data."""
        record: Data = {"time": time.time(), "cpu": self._cpu()}
        for name, figures in self._gpus():
            record[name] = figures
        return record

    def _cpu(self) -> Data:
        before, self._busy = self._busy, self._cpu_times()
        used = None
        if before is not None and self._busy is not None:
            busy, whole = (now - then for now, then in zip(self._busy, before, strict=True))
            used = f"{max(0.0, min(1.0, busy / whole)):.0%}" if whole > 0 else None
        total, free = host_memory()
        held: Data = {"memory_bytes": total - free, "of_bytes": total}
        heat = self._temperature()
        return {"used": used, **held, "celsius": heat}

    def _cpu_times(self) -> tuple[float, float] | None:
        """Return the time that all cores were busy, and all of it."""
        if _STAT.exists():
            first = _STAT.read_text().splitlines()[0]
            # The last two columns are counted in the first ones already.
            ticks = [float(each) for each in first.split()[1:9]]
            return sum(ticks) - sum(ticks[i] for i in _IDLE), sum(ticks)
        if self._psutil is None:
            return None
        times = self._psutil.cpu_times()
        return sum(times) - times.idle, sum(times)

    def _temperature(self) -> float | None:
        """Return the temperature of the warmest sensor of the machine."""
        found: list[float] = []
        for file in _SENSORS.glob("thermal_zone*/temp"):
            try:
                found.append(int(file.read_text()) / 1000)
            except (OSError, ValueError):
                continue
        return max(found, default=None)

    def _gpus(self) -> Iterator[tuple[str, Data]]:
        nvml = self._nvml
        if nvml is None:
            return
        for i in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(i)
            yield f"gpu{i}", _gpu(nvml, device)


def _gpu(nvml: ModuleType, device: object) -> Data:
    """Return the figures of one GPU; None for those that its driver does not give."""

    def figure(name: str, *more: object) -> object:
        try:
            return getattr(nvml, name)(device, *more)
        except nvml.NVMLError:
            return None

    used, memory = figure("nvmlDeviceGetUtilizationRates"), figure("nvmlDeviceGetMemoryInfo")
    milliwatts = figure("nvmlDeviceGetPowerUsage")
    slowed = figure("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "used": None if used is None else f"{vars_of(used, 'gpu')}%",
        "memory_bytes": None if memory is None else vars_of(memory, "used"),
        "of_bytes": None if memory is None else vars_of(memory, "total"),
        "celsius": figure("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "watts": None if milliwatts is None else round(cast("int", milliwatts) / 1000),
        "throttled": None if slowed is None else _reasons(cast("int", slowed)),
    }


def _reasons(bits: int) -> str:
    """Return why the clocks are slowed, in words, or "no"."""
    return ", ".join(word for bit, word in _SLOWED.items() if bits & bit) or "no"


def vars_of(figures: object, name: str) -> int:
    """Return a figure of a structure of NVML."""
    return int(getattr(figures, name))


def _module(name: str) -> ModuleType | None:
    return None if importlib.util.find_spec(name) is None else importlib.import_module(name)


def _nvml() -> tuple[ModuleType | None, str]:
    """Return NVML, started, or why it is not there."""
    nvml = _module("pynvml")
    if nvml is None:
        return None, f"nvidia-ml-py is not installed: {_INSTALL}"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return nvml, ""
