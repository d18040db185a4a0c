"""Two threads beside `shard_map` over two CPU devices of one process, for batches of `auto`.

    python -m tests.perf.devices [NAME ...] [--seconds 3]

The programs are those of `tests/perf/auto.py`, whole and 64 elements at a time. Results are
asserted equal first; the ways take turns, in another order each round, and a figure is the median
over rounds. `gathered` puts the result onto one device, where a caller of the whole finds it, as `auto` does.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

WORKERS = 2
# Before the programs, which run JAX when they are imported.
jax.config.update("jax_num_cpu_devices", WORKERS)

from .auto import PROGRAMS, agreement, by_hand, in_turns  # noqa: E402
from .batches import Batch, plain  # noqa: E402

Run = Callable[..., Any]


def over_devices(batch: Batch, width: int | None) -> tuple[Run, Run]:
    """The batch over the devices, with its result there, and put onto the first of them."""
    mesh = jax.make_mesh((WORKERS,), ("lane",))
    along = PartitionSpec("lane")

    def part(*xs: jax.Array) -> Any:
        if width is None:
            return jax.vmap(batch.body)(*xs)
        return jax.lax.map(lambda each: batch.body(*each), xs, batch_size=width)

    mapped = jax.shard_map(
        part,
        mesh=mesh,
        in_specs=along,
        out_specs=along,
        check_vma=False,
    )
    program = jax.jit(mapped)

    def divided(*xs: np.ndarray) -> Any:
        return program(*jax.device_put(xs, NamedSharding(mesh, along)))

    def gathered(*xs: np.ndarray) -> Any:
        return jax.device_put(divided(*xs), jax.devices()[0])

    return divided, gathered


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.devices")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is given")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the rounds of each")
    given = parser.parse_args()

    ratios: list[float] = []
    for name in given.names or PROGRAMS:
        batch = PROGRAMS[name]
        arrays = [array[: batch.size - batch.size % WORKERS] for array in batch.arrays()]
        agree = agreement(plain(batch)(*arrays))
        for width in (None, 64):
            if not batch.may_thread(width or batch.size):
                continue
            divided, gathered = over_devices(batch, width)
            ways = {"threads": by_hand(batch, width, WORKERS), "divided": divided}
            ways |= {"gathered": gathered}
            for way in ways.values():
                agree(way(*arrays))
            taken = in_turns(ways, arrays, given.seconds)
            wall = {way: statistics.median(w for w, _ in pairs) for way, pairs in taken.items()}
            ratios.append(wall["gathered"] / wall["threads"])
            told = ", ".join(f"{way} {seconds * 1e3:.1f} ms" for way, seconds in wall.items())
            print(f"{name}, {width or 'whole'}: {told}", flush=True)
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"gathered takes {mean:.2f} times as long as threads, in the geometric mean")


if __name__ == "__main__":
    main()
