"""Questions about one function: what it does along its axes, what it sends between devices, how its
memory and its precision can change. Each is a method of a program, too.
"""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._analysis.axes import axes as axes
    from ._analysis.communication import communication as communication
    from ._analysis.frontier import frontier as frontier
    from ._analysis.precision_report import precision_report as precision_report
    from ._analysis.strategy import strategy as strategy
    from ._devices.visualize import visualize as visualize
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "axes": "_analysis.axes",
            "communication": "_analysis.communication",
            "frontier": "_analysis.frontier",
            "precision_report": "_analysis.precision_report",
            "strategy": "_analysis.strategy",
            "visualize": "_devices.visualize",
        },
        private=False,
    )
