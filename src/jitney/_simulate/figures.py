"""Results of `jitney.simulation.simulate`: the figures of one device, and the tables that
show them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._jax.xla.memory import text
from .._public import public_in
from .._remat import flops_text
from .._text.json import Data
from .._text.shown import Shown
from .device import Device

if TYPE_CHECKING:
    from rich.table import Table

Sizes = Mapping[str, int]


@public_in("jitney.simulation")
@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind between the same devices, in one step.

    Args:
        kind: XLA's name: "all-reduce", "all-gather", ...
        along: Axes of the mesh between whose devices they run.
        axes: Named axes that are sharded over these.
        count: Number of runs, with every iteration of a loop.
        bytes: Bytes of their results, on one device; for a reduce-scatter the device's part.
        sent: Bytes that each device sends, by the algorithms that send the least.
        devices: Number of devices in one collective.
        network: True if they cross nodes.
        seconds: Lower bound of their time, one after the other.
    """

    kind: str
    along: tuple[str, ...]
    axes: tuple[str, ...]
    count: int
    bytes: int
    sent: int
    devices: int
    network: bool
    seconds: float


@public_in("jitney.simulation")
@dataclass(frozen=True)
class Share:
    """Argument on one device.

    Args:
        path: Path of the argument.
        bytes: Bytes of the part on one device.
        along: Axes of the mesh that it is sharded over.
    """

    path: str
    bytes: int
    along: tuple[str, ...]


@public_in("jitney.simulation")
@dataclass(frozen=True, repr=False)
class Simulation(Shown):
    """Result of `jitney.simulation.simulate`: one device in one step, unless noted. Printed, a
    table.

    Args:
        function: Name and place of the function.
        mesh: Number of devices along each axis.
        device: Kind of the devices.
        arguments: Bytes of the arguments.
        results: Bytes of the results, without those that alias donated arguments.
        temporaries: Bytes of temporary buffers, by XLA's compiler for CPUs.
        flops: Operations on numbers.
        products: The part of these in products of matrices and convolutions, by the type of
            `Device.peak`.
        accessed: Bytes that go through the memory of the device, each fused group one operation.
        collectives: Communication between the devices.
        largest: Largest arguments, by their bytes on one device.
        notes: Assumptions behind the figures.
        seconds: Seconds that the simulation took.
    """

    function: str
    mesh: Sizes
    device: Device
    arguments: int
    results: int
    temporaries: int
    flops: int
    products: Mapping[str, int]
    accessed: int
    collectives: tuple[Traffic, ...]
    largest: tuple[Share, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def devices(self) -> int:
        """Number of devices in the mesh."""
        return math.prod(self.mesh.values())

    @property
    def memory(self) -> int:
        """Bytes of arguments, results and temporaries."""
        return self.arguments + self.results + self.temporaries

    @property
    def fits(self) -> bool:
        """True if the memory of the device is large enough."""
        return self.memory <= self.device.memory

    @property
    def times(self) -> dict[str, float]:
        """Lower bounds of the seconds of a step: for operations, for memory and for collectives."""
        # Matrix units compute the products, vector units everything else.
        rest = self.flops - sum(self.products.values())
        compute = (
            sum(count / self.device.speed(kind) for kind, count in self.products.items())
            + rest / self.device.vector
        )
        return {
            "compute": compute,
            "memory": self.accessed / self.device.bandwidth,
            "communication": sum(collective.seconds for collective in self.collectives),
        }

    @property
    def bound(self) -> str:
        """Name of the longest of `times`."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def step(self) -> float:
        """Seconds of a step without overlap of communication and computation.

        The sum of two rooflines: that of the device, then that of the links.
        """
        return max(self.times["compute"], self.times["memory"]) + self.times["communication"]

    @property
    def overlapped(self) -> float:
        """Seconds of a step in which all communication overlaps with computation."""
        return max(self.times.values())

    def to_dict(self) -> Data:
        """Return the figures as plain data, for JSON."""
        plain = {
            name: getattr(self, name)
            for name in (
                "function",
                "arguments",
                "results",
                "temporaries",
                "memory",
                "fits",
                "flops",
                "accessed",
                "times",
                "bound",
                "step",
                "overlapped",
                "seconds",
            )
        }
        parts = {
            "mesh": dict(self.mesh),
            "device": self.device.name,
            "products": dict(self.products),
            "notes": list(self.notes),
        }
        return {
            **plain,
            **parts,
            "collectives": [vars(collective) for collective in self.collectives],
            "largest": [vars(share) for share in self.largest],
        }

    def __rich__(self) -> Table:
        from .._text.console import table

        return table(
            f"{self.function} on {self.devices} x {self.device.name}, each in one step",
            list(_rows(self)),
        )


@public_in("jitney.simulation")
@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """Result of `jitney.simulation.simulate` for several meshes. Printed, a table with a row for
    each.

    Args:
        simulations: A simulation of each mesh, in the given order.
    """

    simulations: tuple[Simulation, ...]

    def __iter__(self) -> Iterator[Simulation]:
        return iter(self.simulations)

    def __getitem__(self, i: int) -> Simulation:
        return self.simulations[i]

    def __len__(self) -> int:
        return len(self.simulations)

    def to_dict(self) -> list[Data]:
        """Return the figures as plain data, for JSON."""
        return [simulation.to_dict() for simulation in self.simulations]

    def __rich__(self) -> Table:
        from .._text.console import figures

        head = ["mesh", "", "devices", "memory", "FLOPs", "sent", "step", "bound by"]
        rows = [
            [
                _mesh(simulation.mesh),
                "" if simulation.fits else "does not fit",
                str(simulation.devices),
                text(simulation.memory),
                flops_text(simulation.flops),
                text(sum(part.sent for part in simulation.collectives)),
                seconds_text(simulation.step),
                simulation.bound,
            ]
            for simulation in self.simulations
        ]
        first = self.simulations[0]
        return figures(
            f"{first.function} on {first.device.name}, each device in one step", [head, *rows]
        )


def seconds_text(seconds: float) -> str:
    """Return seconds as text with a unit, `1.25 ms`."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"


def _mesh(mesh: Sizes) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.items())


_Row = list[tuple[str, str]]


def _row(name: str, figure: str, said: str = "", style: str = "") -> _Row:
    return [(name, ""), (figure, style), (said, "")]


def _rows(simulation: Simulation) -> Iterator[_Row]:
    """Yield the lines of the table: name, figure and remark."""
    yield _row("mesh", str(simulation.devices), _mesh(simulation.mesh))
    yield from _memory_rows(simulation)
    kinds = ", ".join(
        f"{flops_text(count)} of products in {_TYPES.get(kind, kind)}"
        for kind, count in simulation.products.items()
        if count
    )
    yield _row("operations", flops_text(simulation.flops), kinds)
    yield _row("bytes accessed", text(simulation.accessed), "through the memory of the device")
    yield from _traffic_rows(simulation)
    parts = ", ".join(f"{name} {seconds_text(time)}" for name, time in simulation.times.items())
    yield _row(
        "step",
        seconds_text(simulation.step),
        f"at best, bound by {simulation.bound}: {parts}",
        "bold",
    )
    yield _row(
        "  overlapped",
        seconds_text(simulation.overlapped),
        "if all that is sent is sent while devices compute",
    )
    yield _row("simulated in", seconds_text(simulation.seconds))
    for note in simulation.notes:
        yield _row("", "", f"- {note}")


def _memory_rows(simulation: Simulation) -> Iterator[_Row]:
    """Yield whether the program fits into the memory of a device, and what it consists of."""
    device = simulation.device
    whole = f"{text(device.memory)} ({device.memory / 1e9:.4g} GB)"
    if simulation.fits:
        yield _row(
            "memory",
            text(simulation.memory),
            f"fits {whole}: {_percent(simulation.memory / device.memory)}",
            "green",
        )
    else:
        over = text(simulation.memory - device.memory)
        yield _row(
            "memory",
            text(simulation.memory),
            f"does not fit {whole}: {over} over. {_advice(simulation)}",
            "red",
        )
    yield _row(
        "  arguments",
        text(simulation.arguments),
        ", ".join(f"{share.path} {text(share.bytes)}" for share in simulation.largest),
    )
    yield _row("  results", text(simulation.results))
    yield _row("  temporaries", text(simulation.temporaries))


def _traffic_rows(simulation: Simulation) -> Iterator[_Row]:
    """Yield what devices send one another, a line for each collective."""
    for collective in simulation.collectives:
        named = f" for {', '.join(map(repr, collective.axes))}" if collective.axes else ""
        where = "between nodes" if collective.network else "within a node"
        along = " and ".join(map(repr, collective.along)) or "no axis"
        said = f"{collective.count} along {along}{named}: {collective.devices} devices {where}, "
        said += f"each sends {text(collective.sent)} in {seconds_text(collective.seconds)}"
        yield _row(collective.kind, text(collective.bytes), said)
    if not simulation.collectives:
        yield _row("collectives", "none", "the devices send each other nothing", "green")


_TYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "tf32": "float32",
    "f32": "float32 at highest precision",
    "f64": "float64",
}


def _percent(part: float) -> str:
    return f"{100 * part:.3g}%" if part >= _LEAST else "less than 0.1%"


_LEAST = 0.001


def _advice(simulation: Simulation) -> str:
    """Return a sentence on what takes most of the memory, and how to reduce it."""
    if simulation.temporaries > simulation.arguments:
        return (
            "Temporaries take the most: try `remat`, `chunk`, or more devices along an axis that"
            " they have."
        )
    # Arguments that are not sharded at all come first: their bytes do not shrink with the mesh.
    whole = [share for share in simulation.largest if not share.along] or list(simulation.largest)
    return (
        f"Arguments take the most: lay axes of {', '.join(share.path for share in whole)} along the"
        " mesh with `shard`."
    )
