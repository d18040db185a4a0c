"""Cost of a program on devices that are not there."""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._simulate.device import Device as Device
    from ._simulate.figures import Share as Share
    from ._simulate.figures import Simulation as Simulation
    from ._simulate.figures import Sweep as Sweep
    from ._simulate.figures import Traffic as Traffic
    from ._simulate.simulate import simulate as simulate
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "Device": "_simulate.device",
            "Share": "_simulate.figures",
            "Simulation": "_simulate.figures",
            "Sweep": "_simulate.figures",
            "Traffic": "_simulate.figures",
            "simulate": "_simulate.simulate",
        },
        private=False,
    )
