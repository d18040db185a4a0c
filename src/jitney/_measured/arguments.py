"""Arguments of measured calls: transfer to the device, copies for functions that donate, and calls
on a device of `devices=` of `jitney.measure`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np

from .._errors import OptionError, name_fix, repr_of
from .._jax.devices import LocalDevice, local_devices
from .._jax.trees import Tracer, device_put, issubdtype, tree_flatten, tree_map


@dataclass(frozen=True)
class Put:
    """Arguments on the device, with the cost of their transfer.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        arrays: Number of arrays that were on the host.
        size: Bytes of these arrays.
        seconds: Seconds until they were on the device.
    """

    args: tuple[object, ...]
    kwargs: dict[str, object]
    arrays: int
    size: int
    seconds: float

    def copy(self) -> Put:
        """Return copies of the arrays, which may be donated."""
        args, kwargs = tree_map(_copy, (self.args, self.kwargs))
        jax.block_until_ready((args, kwargs))
        return Put(args, kwargs, self.arrays, self.size, self.seconds)

    @property
    def is_donated(self) -> bool:
        """True if a call has donated any of the arrays."""
        return any(
            leaf.is_deleted()
            for leaf in tree_flatten((self.args, self.kwargs))[0]
            if isinstance(leaf, jax.Array)
        )


def put(
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    on_device: bool,
) -> Put:
    """Put NumPy arrays on the device if `on_device`.

    Raises:
        OptionError: An argument has no value to measure with, because it is being traced.
    """
    leaves = tree_flatten((args, kwargs))[0]
    if any(isinstance(leaf, (Tracer, jax.ShapeDtypeStruct)) for leaf in leaves):
        raise OptionError(
            "jitney.measure()",
            "an argument has no value.",
            "Calls are timed on arrays, outside of any `jit` or `grad`.",
            "call it with arrays, at the top level of the program.",
            code="J208",
        )
    # The blocking wait belongs into the time: `device_put` returns before the copy is done.

    host = [leaf for leaf in leaves if on_device and is_host(leaf)]
    start = time.perf_counter()
    if host:
        args, kwargs = tree_map(_put, (args, kwargs))
        jax.block_until_ready((args, kwargs))
    return Put(
        args,
        kwargs,
        len(host),
        sum(leaf.nbytes for leaf in host),
        time.perf_counter() - start if host else 0.0,
    )


def check_calls(
    where: str,
    functions: Mapping[str, object],
    kwargs: object,
) -> None:
    """Check that functions are callable, and that keyword arguments are a dict.

    Args:
        where: Public function for the message.
        functions: Functions by the names of its parameters.
        kwargs: Keyword arguments, or None.
    Raises:
        OptionError: A function is not callable, or `kwargs` is not a dict with names as keys.
    """
    for name, f in functions.items():
        if not callable(f):
            rule = "It is a function, which is called."
            raise OptionError(
                where,
                f"`{name}` is {short_repr(f)}.",
                rule,
                f"hand over a function as `{name}`.",
                code="J208",
            )
    if kwargs is not None and not (
        isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)
    ):
        rule = "It is a dict from names to arguments."
        raise OptionError(
            where, f"kwargs={short_repr(kwargs)}.", rule, 'write `kwargs={"x": x}`.', code="J208"
        )


def short_repr(value: object) -> str:
    """Return the repr of a value, cut off at 60 letters."""
    text = repr_of(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


_LONG = 60


def _copy(leaf: object) -> Any:
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf


def _put(leaf: object) -> Any:
    return device_put(leaf) if is_host(leaf) else leaf


def is_host(leaf: object) -> bool:
    """Return whether a leaf is an array of the host that a device can hold."""
    return isinstance(leaf, np.ndarray) and (
        leaf.dtype == np.bool_ or issubdtype(leaf.dtype, np.number)
    )


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
