"""Versions that have to fit for NVIDIA GPUs: driver, CUDA, the plugin of JAX and jaxlib.

The rules are those of JAX's installation guide, and tests give them versions; tried on a machine
with an H200, a driver 580 and JAX's plugin for CUDA 13.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .checks import Check

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


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


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
