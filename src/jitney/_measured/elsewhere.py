"""Devices by their names, and calls and arguments on one of them, for `devices=` of
`jitney.measure`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import jax

from .._errors import OptionError, name_fix
from .._jax.devices import LocalDevice, local_devices
from .._jax.trees import device_put, tree_map
from .arguments import Put, is_host, short_repr


def name_of(device: LocalDevice) -> str:
    """Return the name of a device, as "gpu:1"."""
    return f"{device.platform}:{device.id}"


def read_devices(given: object, against: object, *, on_device: bool) -> list[LocalDevice]:
    """Return the devices that are meant.

    Raises:
        OptionError: It is not a list of devices, one of them is not there, or another option is in
            its way.
    """
    where = "jitney.measure()"
    if against is not None or not on_device:
        other = "`against`" if against is not None else "`on_device=False`"
        raise OptionError(
            where,
            f"`devices` and {other} are given together.",
            "`devices` compares one function on several devices, with its arguments on each.",
            "leave one of the two out.",
            code="J208",
        )
    listed = cast("list[object]", list(given)) if isinstance(given, (list, tuple)) else []
    if not listed or len(set(map(str, listed))) < len(listed):
        raise OptionError(
            where,
            f"devices={short_repr(given)} is not a list of devices, each once.",
            "Devices are those of JAX, or their names.",
            'write `devices=["cpu:0"]`, or more of them.',
            code="J208",
        )
    known = {name_of(device): device for device in local_devices()}
    names = list(map(_named, listed))
    for name in names:
        if name not in known:
            raise OptionError(
                where,
                f"there is no device {name!r} in this process.",
                f"There are {', '.join(known)}.",
                name_fix(name, known, "name one of these."),
                code="J208",
            )
    return [known[name] for name in names]


def _named(device: object) -> str:
    is_device = hasattr(device, "platform")
    return name_of(cast("LocalDevice", device)) if is_device else str(device)


def move(given: Put, device: LocalDevice) -> Put:
    """Return the arguments with their arrays on a device, and the seconds until they were there."""
    start = time.perf_counter()
    args, kwargs = tree_map(
        lambda leaf: device_put(leaf, device) if _is_moved(leaf) else leaf,
        (given.args, given.kwargs),
    )
    jax.block_until_ready((args, kwargs))
    return Put(args, kwargs, given.arrays, given.size, time.perf_counter() - start)


def _is_moved(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) or is_host(leaf)


def on(device: LocalDevice, f: Callable[..., object]) -> Callable[..., object]:
    """Return a function whose new arrays are on a device too."""

    def there(*args: object, **kwargs: object) -> object:
        with jax.default_device(device):
            return f(*args, **kwargs)

    return there
