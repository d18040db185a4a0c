"""Changes to the arguments of compiled calls: NumPy arrays, moved arrays, and memory to donate.

Only properties that every inspected call had are reported: an array of NumPy is put on the device
each time, an array is moved between devices each time, an argument dies at each call. Transfers are
timed when the program is over, with an array of that size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ..._errors import shortlist
from ..._owners import short
from ..._text.json import Data, Record
from .change import ProposedChange, in_bytes

# Calls of a place from which on it counts as repeated.
_AGAIN = 5
# Inspected calls from which on a property counts as constant.
_LOOKED = 4
# Transfers of one timing, and the seconds after which it ends early.
_TIMED, _LONG = 5, 0.5


def argument_changes(seen: Sequence[Record]) -> Iterator[ProposedChange]:
    """Yield changes by place and argument."""
    for place in seen:
        if not _counts(place):
            continue
        where = f"{short(place['file'])}:{place['line']} ({place['function']})"
        copied = [each for each in place["handed"] if each["numpy"]]
        yield from _copy_changes(
            [each for each in copied if each["same"]],
            place,
            where,
            same=True,
        )
        yield from _copy_changes(
            [each for each in copied if not each["same"]], place, where, same=False
        )
        yield from (
            _move_change(place, each, where)
            for each in place["handed"]
            if each["same"] and each["moved"] and not each["numpy"]
        )
        yield from _donation_changes(place, where)


def _copy_changes(
    several: Sequence[Record],
    place: Record,
    where: str,
    *,
    same: bool,
) -> Iterator[ProposedChange]:
    """Yield one change for NumPy arguments, which JAX puts on the device at each call.

    That is a copy, except on CPUs where the memory can be shared.
    """
    if not several:
        return
    names, size = (
        shortlist([each["name"] for each in several]),
        in_bytes(sum(each["nbytes"] for each in several)),
    )
    first = several[0]["name"]
    if same:
        what = f"{names}, {size} of NumPy with the same numbers each time"
        write = (
            f"{first} = jnp.asarray({first})  # once, before the loop, if nothing writes into it"
        )
    else:
        what = f"{names}, up to {size} of NumPy"
        write = (
            f"jnp in place of np where {first} is computed from results, and the loop in one"
            " jax.jit, with jax.lax.while_loop or scan; jax.device_put of the next one while this"
            " call runs, where it is data"
        )

    # Equal numbers still need one transfer; numbers that are computed from results need none.
    yield ProposedChange(
        sum(each["seconds"] for each in several) * (place["times"] - same),
        at_most=True,
        what=(
            f"{what}, are put on the device again for {place['name']} at each of {place['times']}"
            " calls"
        ),
        where=where,
        write=write,
    )


def _move_change(place: Record, each: Record, where: str) -> ProposedChange:
    """Return the change for an array that each call copies to other devices."""
    name, devices = each["name"], len(each["target"].device_set)
    spec = "jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())"
    return ProposedChange(
        each["seconds"] * (place["times"] - 1),
        at_most=False,
        what=(
            f"{name}, of {in_bytes(each['nbytes'])}, is on fewer devices than {place['name']}"
            f" computes on ({devices}): it is moved {place['times']} times"
        ),
        where=where,
        write=f"{name} = jax.device_put({name}, {spec})  # once, before the loop",
    )


def with_transfer_seconds(seen: Sequence[Record]) -> list[Data]:
    """Return the record with `seconds`, the time of one transfer, for each argument.

    Call it while JAX's backends are alive: they end before the report is written.
    """
    return [
        (
            {**place, "handed": [{**each, "seconds": _seconds(each)} for each in place["handed"]]}
            if _counts(place)
            else dict(place)
        )
        for place in seen
    ]


def _counts(place: Record) -> bool:
    """Return whether a record is of a call that was repeated and inspected often enough."""
    return place["kind"] == "call" and place["times"] >= _AGAIN and place["looked"] >= _LOOKED


def _seconds(each: Record) -> float:
    """Return the median seconds of one transfer of zeros of that size; 0 if nothing is transferred.

    The transfer is from NumPy to the default device, or from one device to all of the target's.
    """
    if not (
        each["numpy"] or (each["same"] and each["moved"] and each["target"].is_fully_addressable)
    ):
        return 0.0
    taken = list[float]()
    try:
        zeros, target = _like(each), None if each["numpy"] else _everywhere(each["target"])
        if target is not None:
            zeros = jax.device_put(zeros).block_until_ready()
        while len(taken) < _TIMED and sum(taken) < _LONG:
            began = time.perf_counter()
            jax.device_put(zeros, target).block_until_ready()
            taken.append(time.perf_counter() - began)
    # Memory or devices are gone. The exit of the user's program must not change.
    except (RuntimeError, ValueError, MemoryError):
        return 0.0
    return statistics.median(taken)


def _like(each: Record) -> Any:
    try:
        return np.zeros(each["shape"], each["dtype"])
    # NumPy knows no dtype of that name.
    except TypeError:
        return np.zeros(each["nbytes"], np.uint8)


def _everywhere(sharding: jax.sharding.Sharding) -> Any:
    """Return a sharding that replicates an array on each device of another sharding."""
    mesh = jax.sharding.Mesh(
        np.array(sorted(sharding.device_set, key=lambda device: device.id)), ("devices",)
    )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _donation_changes(place: Record, where: str) -> Iterator[ProposedChange]:
    """Yield the arguments whose memory a result could take over, as one change.

    They died with the statement, at each call but perhaps the first, and had the shape, dtype and
    sharding of a result.
    """
    # Before the first call of a loop the argument may have another name as well, which keeps it
    # alive.
    dead = [
        each
        for each in place["passed"]
        if all(each["dead"][1:]) and not each["donated"] and each["saved"]
    ]
    if not dead:
        return

    goes = dict(place["arguments"])
    numbers = [goes[each["name"]] for each in dead]
    words = [f'"{number}"' for number in numbers if not number.isdigit()]
    positions = [number for number in numbers if number.isdigit()]
    options = [f"donate_argnums=({', '.join(positions)},)"] if positions else []
    options += [f"donate_argnames=({', '.join(words)},)"] if words else []

    names = ", ".join(each["name"] for each in dead)
    copy = f"jax.tree.map(jnp.copy, {dead[0]['name']})"
    start = (
        f"; the first call of a loop takes a copy, {copy}, where what it is given is used"
        " afterwards"
    )

    yield ProposedChange(
        None,
        at_most=True,
        what=(
            f"{names} of {place['name']} dies at each call, and a result has its shape: its memory"
            " could be the result's"
        ),
        where=where,
        write=f"jax.jit(..., {', '.join(options)})  # of {place['name']}{start}",
        nbytes=sum(each["saved"] for each in dead),
    )
