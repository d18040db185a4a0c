"""Tools as methods: every tool that reports on one function, or runs it, is a method of `Program`
and `Derivative`.

A tool stands above these classes in the layers, since it compiles, streams and times their objects;
a method only forwards to it, by its public name. Some results of tools are defined above, too:
their types are the only imports upwards, by name in the list of layers in `pyproject.toml`.
Functions that return a new function (`accumulate`, `lazy_derivatives`, `pipeline`, `scan_steps`,
`shared`) are not methods.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from .._owners import public
from .._signature.options import AUTO, Wrt

if TYPE_CHECKING:
    from .._jax.mesh import Mesh
    from .._measured.measure import Measurement
    from .._program.tolerance.precision_report import PrecisionReport
    from .._report.axis_facts import Axes
    from .._report.comparisons import Communication, Frontier, Strategy
    from .._report.streamed import Streamed
    from .._simulate.device import Device
    from .._simulate.figures import Simulation, Sizes, Sweep

R = TypeVar("R", covariant=True)


class Tools(Generic[R]):
    """Methods of a program or a derivative. Each forwards to the public function that its docstring
    names, with this object as the first argument; arguments and errors are described there.
    """

    @public
    def axes(
        self,
        /,
        *examples: object,
        sizes: Mapping[str, int] | None = None,
        **keywords: object,
    ) -> Axes:
        """Return the facts along each named axis; see `jitney.analysis.axes`."""
        return _tool("jitney.analysis", "axes")(self, *examples, sizes=sizes, **keywords)

    @public
    def communication(
        self,
        /,
        *args: object,
        **kwargs: object,
    ) -> Communication:
        """Return the traffic between devices in a call; see `jitney.analysis.communication`."""
        return _tool("jitney.analysis", "communication")(self, *args, **kwargs)

    @public
    def frontier(
        self,
        /,
        *examples: object,
        wrt: Wrt = None,
        memory: int | str | None = None,
        sizes: Mapping[str, int] | None = None,
        **keywords: object,
    ) -> Frontier:
        """Return the memory of its gradient by recomputation; see `jitney.analysis.frontier`."""
        return _tool("jitney.analysis", "frontier")(
            self, *examples, wrt=wrt, memory=memory, sizes=sizes, **keywords
        )

    @public
    def measure(
        self,
        /,
        *args: object,
        against: Callable[..., object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        tolerance: float | None = None,
        seconds: float = 2.0,
        rounds: int = 16,
        on_device: bool = True,
        devices: Sequence[object] | None = None,
    ) -> Measurement:
        """Measure the time of a call, alone or against another way; see `jitney.measure`."""
        return _tool("jitney", "measure")(
            self,
            *args,
            against=against,
            kwargs=kwargs,
            tolerance=tolerance,
            seconds=seconds,
            rounds=rounds,
            on_device=on_device,
            devices=devices,
        )

    @public
    def precision_report(
        self,
        /,
        *args: object,
        tolerance: float = 1e-2,
        low: str | None = None,
        **kwargs: object,
    ) -> PrecisionReport:
        """Report the products that must stay in float32; see `jitney.analysis.precision_report`."""
        return _tool("jitney.analysis", "precision_report")(
            self, *args, tolerance=tolerance, low=low, **kwargs
        )

    @overload
    def simulate(
        self,
        /,
        *examples: object,
        mesh: Sizes | Mesh | None = None,
        device: str | Device,
        sizes: Sizes | None = None,
        wrt: Wrt = None,
        **keywords: object,
    ) -> Simulation: ...
    @overload
    def simulate(
        self,
        /,
        *examples: object,
        mesh: Sequence[Sizes | Mesh],
        device: str | Device,
        sizes: Sizes | None = None,
        wrt: Wrt = None,
        **keywords: object,
    ) -> Sweep: ...
    @public
    def simulate(
        self,
        /,
        *examples: object,
        mesh: Sizes | Mesh | Sequence[Sizes | Mesh] | None = None,
        device: str | Device,
        sizes: Sizes | None = None,
        wrt: Wrt = None,
        **keywords: object,
    ) -> Simulation | Sweep:
        """Return the cost on devices that are not there; see `jitney.simulation.simulate`."""
        return _tool("jitney.simulation", "simulate")(
            self, *examples, mesh=mesh, device=device, sizes=sizes, wrt=wrt, **keywords
        )

    @public
    def strategy(
        self,
        /,
        *examples: object,
        sizes: Mapping[str, int] | None = None,
        memory: int | str = AUTO,
        **named: object,
    ) -> Strategy:
        """Return the ways to run within some memory; see `jitney.analysis.strategy`."""
        return _tool("jitney.analysis", "strategy")(
            self, *examples, sizes=sizes, memory=memory, **named
        )

    @public
    def stream(
        self,
        /,
        *args: object,
        chunk: Mapping[str, int | Literal["auto"]] | int | Literal["auto"] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str | None = None,
        retries: int | None = None,
        progress: bool | None = None,
        **kwargs: object,
    ) -> Streamed[R]:
        """Run the function over data of any length, a chunk at a time; see `jitney.stream`."""
        return _tool("jitney", "stream")(
            self,
            *args,
            chunk=chunk,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            retries=retries,
            progress=progress,
            **kwargs,
        )


def _tool(module: str, name: str) -> Any:
    """Return a function of a public module, which is imported when the method of its name is
    called.
    """
    return getattr(importlib.import_module(module), name)
