"""`doctor`: facts about this machine and installation, each marked ok or with a fix.

The exit status is 1 only if a check fails, which means that a program would fail or compute wrong
numbers. A warning leaves it 0.

Versions that have to fit for NVIDIA GPUs (driver, CUDA, the plugin of JAX and jaxlib) follow the
rules of JAX's installation guide, and tests give them versions; tried on a machine with an H200, a
driver 580 and JAX's plugin for CUDA 13.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from ..._errors import JitneyWarning, plural
from ..._host.limits import Host
from ..._jax.compile_cache import cache
from ..._jax.compile_cache.entries import damaged_entries
from ..._jax.settings import x64_is_on
from ..._version import __version__
from ..cache.command import entries
from . import checks
from .checks import Check

_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}
_PACKAGES = ("jax", "jaxlib", "equinox", "jaxtyping", "numpy", "zstandard")


def carry_out(given: argparse.Namespace) -> int:
    """Run all checks, print them as a table or as JSON, and return the exit status."""
    found = list(_checks(measure=not given.no_measure))
    if given.json:
        sys.stdout.write(
            json.dumps({"checks": [check.to_dict() for check in found]}, indent=1) + "\n"
        )
    else:
        sys.stdout.write(_format_checks(found))
    return int(any(check.state == "fail" for check in found))


def _checks(*, measure: bool) -> Iterator[Check]:
    yield _versions()
    yield _devices()
    here = Host()
    yield checks.threads(here)
    yield checks.memory(here)
    yield _cache()
    yield Check(
        "float64",
        "on" if x64_is_on() else "off: numbers are float32 (jax_enable_x64)",
    )
    yield Check("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") or "not set")
    yield gpus(installed())
    yield checks.fusion()
    if measure:
        yield from checks.measurements()


def _format_checks(checks: list[Check]) -> str:
    from ..._text.console import table, text_of

    rows = [
        [(check.state, _STYLE[check.state]), (check.name, ""), (check.value, "")]
        for check in checks
    ]
    fixes = "".join(f"\n{check.name}:\n    {check.fix}\n" for check in checks if check.fix)
    return f"{text_of(table('doctor', rows))}\n{fixes}"


def _versions() -> Check:
    found = {
        "python": platform.python_version(),
        "jitney": __version__,
        **{name: _version(name) for name in _PACKAGES},
    }
    value = ", ".join(f"{name} {version or 'not installed'}" for name, version in found.items())
    if found["jax"] != found["jaxlib"]:
        return Check(
            "versions",
            f"{value}: jax and jaxlib differ",
            "warn",
            "python -m pip install --upgrade jax jaxlib",
            found,
        )
    return Check("versions", value, data=found)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> Check:
    try:
        devices = jax.devices()
    except RuntimeError as error:
        return Check(
            "devices",
            str(error).strip().splitlines()[0],
            "fail",
            "export JAX_PLATFORMS=",
        )
    data = [
        {"id": each.id, "platform": each.platform, "kind": each.device_kind, "memory": _bytes(each)}
        for each in devices
    ]

    kinds = dict.fromkeys((each.platform, each.device_kind) for each in devices)
    value = ", ".join(
        f"{sum((d.platform, d.device_kind) == kind for d in devices)} {kind[0]} ({kind[1]})"
        for kind in kinds
    )

    if devices[0].platform == "cpu" and _has_unused_gpu():
        return Check(
            "devices",
            f"{value}; there is an NVIDIA GPU that JAX has no plugin for",
            "warn",
            'python -m pip install "jax[cuda13]"',
            data,
        )
    return Check("devices", value, data=data)


def _bytes(device: Any) -> int | None:
    """Return the bytes of device memory that JAX may use; None on CPUs, which do not report it."""
    told = device.memory_stats()
    return told["bytes_limit"] if told and "bytes_limit" in told else None


def _has_unused_gpu() -> bool:
    # A GPU's device file, but no plugin of JAX for it, and no choice of platforms by the user.
    plugins = any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    return os.path.exists("/dev/nvidia0") and not plugins and not os.environ.get("JAX_PLATFORMS")  # noqa: PTH110 - one name


def _cache() -> Check:
    """Check the persistent cache as the next program would find it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", JitneyWarning)
        cache.ensure()

    facts = cache.facts()
    if facts.directory is None or not facts.enabled:
        # The reason for a cache that is off comes as a warning of jitney, and its fix is the part
        # after "Fix: ".
        fixes = [
            text.split("Fix: ", 1)[1]
            for text in (str(each.message) for each in told)
            if "Fix: " in text
        ]
        return Check(
            "cache",
            f"off: {facts.reason}",
            "warn",
            fixes[0] if fixes else "unset JITNEY_CACHE JAX_ENABLE_COMPILATION_CACHE",
        )

    kept = entries(facts.directory)
    size = sum(entry.bytes for entry in kept)
    limit = (
        "no limit" if facts.size_limit is None else f"a limit of {facts.size_limit / 2**30:.2g} GiB"
    )
    broken = damaged_entries(facts.directory)
    value = (
        f"{plural(len(kept), 'program')}, {size / 2**20:,.1f} MiB, {limit}, in {facts.directory}"
        f" ({facts.reason})"
    )
    data = {
        "directory": str(facts.directory),
        "programs": len(kept),
        "bytes": size,
        "limit": facts.size_limit,
        "damaged": len(broken),
    }

    if broken:
        return Check(
            "cache",
            f"{value}; {len(broken)} are damaged and will be compiled again",
            "warn",
            "python -m jitney cache prune --damaged",
            data,
        )
    return Check("cache", value, data=data)


# Least driver for each CUDA, by JAX's installation guide.
_DRIVERS = {"12": 525, "13": 580}
_PLUGINS = tuple(f"jax-cuda{cuda}-{part}" for cuda in _DRIVERS for part in ("plugin", "pjrt"))
_LIBRARIES = (
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
# Parts of CUDA that pip installs for the plugin.
_SHADOWED = ("libcudart", "libcublas", "libcudnn", "libcusolver", "libcusparse", "libcufft")
_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Installed:
    """What is installed for GPUs.

    Args:
        driver: Version of NVIDIA's driver; None if there is none.
        jaxlib: Version of jaxlib.
        packages: Versions of the plugins and of NVIDIA's libraries, by package.
        shadowing: Libraries on `LD_LIBRARY_PATH` that come before those of pip.
    """

    driver: str | None
    jaxlib: str | None
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    shadowing: tuple[str, ...] = ()

    @property
    def cudas(self) -> list[str]:
        """Versions of CUDA that there is a plugin for."""
        return [cuda for cuda in _DRIVERS if f"jax-cuda{cuda}-plugin" in self.packages]


def installed() -> Installed:
    """Return what is installed here."""
    found = {name: _version(name) for name in (*_PLUGINS, *_LIBRARIES)}
    packages = {name: version for name, version in found.items() if version is not None}
    path = os.environ.get("LD_LIBRARY_PATH", "")
    return Installed(_driver(), _version("jaxlib"), packages, shadowing(path))


def shadowing(path: str) -> tuple[str, ...]:
    """Return the CUDA libraries in the folders of a path. The driver's own (`libcuda.so`) are not
    among them: containers have these in a folder that has to stay on the path.
    """
    folders = [Path(folder) for folder in path.split(os.pathsep) if folder]
    return tuple(
        str(found)
        for folder in folders
        for name in _SHADOWED
        for found in sorted(folder.glob(f"{name}.so*"))[:1]
    )


def _driver() -> str | None:
    try:
        text = _DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return "unknown" if found is None else found[1]


def gpus(here: Installed) -> Check:
    """Check that driver, plugin and jaxlib fit; the fix is for the first that does not."""
    parts = [f"driver {here.driver or 'not there'}"]
    parts += [f"{name} {version}" for name, version in here.packages.items()]
    if not here.cudas:
        parts.append("no CUDA plugin of JAX")
    data = {"driver": here.driver, "jaxlib": here.jaxlib, "packages": dict(here.packages)}
    for what, fix in _misfits(here):
        return Check("GPU", f"{', '.join(parts)}: {what}", "warn", fix, data)
    return Check("GPU", ", ".join(parts), data=data)


def _misfits(here: Installed) -> Iterator[tuple[str, str]]:
    """Yield what does not fit, with the line that mends it."""
    if len(here.cudas) > 1:
        one, other = here.cudas
        yield (
            f"plugins for CUDA {one} and {other} at once",
            f"python -m pip uninstall -y jax-cuda{one}-plugin jax-cuda{one}-pjrt",
        )
    for cuda in here.cudas:
        install = f'python -m pip install --upgrade "jax[cuda{cuda}]"'
        for part in ("plugin", "pjrt"):
            version = here.packages.get(f"jax-cuda{cuda}-{part}")
            if version is None:
                yield f"jax-cuda{cuda}-{part} is missing", install
            elif here.jaxlib is not None and version != here.jaxlib:
                yield f"jax-cuda{cuda}-{part} {version} beside jaxlib {here.jaxlib}", install
        least = _DRIVERS[cuda]
        major = None if here.driver is None else re.match(r"\d+", here.driver)
        if major is not None and int(major[0]) < least:
            # An older CUDA may do with this driver.
            older = [name for name, need in _DRIVERS.items() if need <= int(major[0])]
            mends = f'python -m pip install --upgrade "jax[cuda{older[-1]}]"' if older else ""
            yield f"CUDA {cuda} needs a driver from {least} on", mends or "update the driver"
    # Libraries on this path come before those that pip installed for the plugin.
    if here.cudas and here.shadowing:
        folder = Path(here.shadowing[0]).parent
        yield (
            f"LD_LIBRARY_PATH has other CUDA libraries, as {here.shadowing[0]}",
            f"take {folder} off LD_LIBRARY_PATH",
        )
