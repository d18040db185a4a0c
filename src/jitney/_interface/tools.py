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
    from .._program.tolerance import PrecisionReport
    from .._report.axis_facts import Axes
    from .._report.communication import Communication
    from .._report.frontier import Frontier
    from .._report.strategy import Strategy
    from .._report.streamed import Streamed
    from .._simulate.device import Device
    from .._simulate.figures import Simulation, Sizes, Sweep

R = TypeVar("R", covariant=True)


class Tools(Generic[R]):
    """Methods of a program or a derivative. Each forwards to the public function of its name, with
    this object as the first argument.
    """

    @public
    def axes(
        self,
        /,
        *examples: object,
        sizes: Mapping[str, int] | None = None,
        **keywords: object,
    ) -> Axes:
        """Return what the function does along each named axis of its signature, proven on its
        program with symbolic sizes; see `jitney.axes`.

        Args:
            examples: As for `Program.compile`.
            sizes: Axis name -> size, for parameters that are left out.
            keywords: Examples by name.

        Returns:
            Axis name -> facts. Printed, a line for each axis.

        Raises:
            ContractError: The examples do not fit the contract, or no axis has a name.
        """
        return _tool("axes")(self, *examples, sizes=sizes, **keywords)

    @public
    def communication(
        self,
        /,
        *args: object,
        **kwargs: object,
    ) -> Communication:
        """Return the traffic between devices in a call, in bytes on one device, by kind and line,
        as XLA compiled it; see `jitney.communication`. The program is compiled for that, and not
        run.

        Args:
            args: As for a call; `jax.ShapeDtypeStruct` values will do.
            kwargs: As for a call; for a derivative also `wrt`.

        Raises:
            OptionError: The function has no `shard`.
            MeshError: There is no mesh, or an axis does not divide.
        """
        return _tool("communication")(self, *args, **kwargs)

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
        """Return the memory of its gradient, in bytes, against the operations that are recomputed;
        see `jitney.frontier`.

        Several programs are compiled, and none is run.

        Args:
            examples: As for `Program.compile`.
            wrt: The arguments that the gradient is taken with respect to: a name or several.
            memory: Bytes, a text such as `"2GiB"`, or `"auto"` for the free memory.
            sizes: Axis name -> size, for parameters that are left out.
            keywords: Examples by name.

        Raises:
            DerivativeError: The function has no gradient, or an argument does not exist.
            OptionError: `memory` is not a size.
        """
        return _tool("frontier")(self, *examples, wrt=wrt, memory=memory, sizes=sizes, **keywords)

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
    ) -> Measurement:
        """Measure the time of a call, in seconds, and compare it with another way to compute the
        same; see `jitney.measure`.

        Args:
            *args: Arguments of the calls.
            against: A function that computes the same, for a verdict.
            kwargs: Arguments by name, for both.
            tolerance: Allowed distance of the results, relative to the largest element of each
                array.
            seconds: Time for the warm calls, if that leaves enough rounds.
            rounds: Number of rounds at least, however long they take.
            on_device: False leaves NumPy arrays where they are.

        Raises:
            VerificationError: The results differ.
            OptionError: An option makes no sense, or an argument has no value.
        """
        return _tool("measure")(
            self,
            *args,
            against=against,
            kwargs=kwargs,
            tolerance=tolerance,
            seconds=seconds,
            rounds=rounds,
            on_device=on_device,
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
        """Run the function next to its float64 shadow, and report which products must stay in
        float32; see `jitney.precision_report`.

        Args:
            args: Its arguments: values, not shapes.
            tolerance: The largest allowed relative error, in the 2-norm, of any output and
                gradient.
            low: "bf16" or "fp16"; by default the dtype in its `precision=`, else bf16.
            kwargs: Arguments by name.

        Raises:
            OptionError: The tolerance or the dtype is invalid, or an argument has no value.
        """
        return _tool("precision_report")(self, *args, tolerance=tolerance, low=low, **kwargs)

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
        """Return the cost on devices that are not there: bytes, operations, and a model of the
        seconds; see `jitney.simulate`.

        Args:
            examples: As for `Program.compile`.
            mesh: The number of devices along each axis, or a mesh; several for a table.
            device: A name such as "h100", or a `jitney.Device`.
            sizes: Axis name -> size, for parameters that are left out.
            wrt: For a derivative, the arguments it is taken with respect to.
            keywords: Examples by name.

        Raises:
            OptionError: The device is not known, or the function cannot be divided.
            MeshError: The mesh is invalid, an axis does not divide, or the program cannot be
                compiled for it.
            ContractError: A size is missing.
        """
        return _tool("simulate")(
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
        """Return how data of certain sizes can be processed within some memory: at once, in chunks,
        or streamed; see `jitney.strategy`.

        Each variant is compiled for abstract values, and none is run.

        Args:
            examples: As for `Program.compile`.
            sizes: Axis name -> size; the longest axis is the one that is cut.
            memory: Bytes, a text such as `"2GiB"`, or `"auto"` for the free memory.
            named: Examples by name; for a derivative also `wrt`.

        Raises:
            ContractError: A size is missing or unknown, or no array has an axis with a name.
            MeshError: The function has `shard`, and there is no mesh, or an axis does not divide.
            OptionError: `memory` is not a size.
        """
        return _tool("strategy")(self, *examples, sizes=sizes, memory=memory, **named)

    @public
    def stream(
        self,
        data: Mapping[str, object],
        /,
        *,
        chunk: Mapping[str, int | Literal["auto"]],
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str | None = None,
        retries: int = 2,
        progress: bool = True,
    ) -> Streamed[R]:
        """Run the function over data of any length, a chunk at a time; see `jitney.stream`, where
        each argument is described.

        Args:
            data: Argument name -> value: arrays, memory maps, files of NumPy, Zarr or HDF5 arrays,
                or objects that yield chunks.
            chunk: Axis name -> the number of its elements that are read at a time, or `"auto"`.
            checkpoint: A file for the accumulated state.
            checkpoint_every: How often it is written: a number of chunks, or seconds as in `"30s"`.
            retries: How often a chunk is read once more after a failed read.
            progress: Whether a bar shows the progress of the run.

        Raises:
            AxisError: An operation looks along the axis in a way that cannot be carried from chunk
                to chunk.
            ContractError: The data do not fit the contract, or no array has the axis.
            MeshError: It has `shard`, and there is no mesh, or another axis than the one that is
                cut does not divide.
            JitneyError: The checkpoint is damaged or belongs to another run; a result has the axis
                and cannot be stored in one.
            DataError: The data have changed, or a slice came with other rows than requested.
            OSError: A chunk could not be read.
        """
        return _tool("stream")(
            self,
            data,
            chunk=chunk,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            retries=retries,
            progress=progress,
        )


def _tool(name: str) -> Any:
    """Return the public function of this name, imported when a method of its name is called."""
    return getattr(importlib.import_module("jitney"), name)
