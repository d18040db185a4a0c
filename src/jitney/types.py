"""Classes of what jitney's functions return, for annotations and `isinstance`. A user's code calls
none of them.
"""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._devices.host import Fetch as Fetch
    from ._devices.machine import DeviceFacts as DeviceFacts
    from ._devices.machine import Machine as Machine
    from ._devices.pipeline import Pipeline as Pipeline
    from ._devices.pipeline import Schedule as Schedule
    from ._devices.speeds import DeviceSpeed as DeviceSpeed
    from ._devices.visualize import Placement as Placement
    from ._diagnosis.counters.stats import Stats as Stats
    from ._diagnosis.jax_work import NoCompiles as NoCompiles
    from ._diagnosis.jax_work import Watch as Watch
    from ._diagnosis.jax_work import Work as Work
    from ._diagnosis.memory_course import MemoryCourse as MemoryCourse
    from ._diagnosis.memory_course import MemoryPeak as MemoryPeak
    from ._diagnosis.retraces.cause import Cause as Cause
    from ._export.loading.loaded import ExportedProgram as ExportedProgram
    from ._export.loading.loaded import Loaded as Loaded
    from ._interface.derivatives.derivative import Derivative as Derivative
    from ._interface.stack import Stacked as Stacked
    from ._jax.compile_cache.cache import CacheFacts as CacheFacts
    from ._jax.mesh import Mesh as Mesh
    from ._measured.measure import Measurement as Measurement
    from ._measured.measure import Timing as Timing
    from ._measured.profile import Profile as Profile
    from ._measured.verdict import Verdict as Verdict
    from ._program.rows.ragged import PaddedRows as PaddedRows
    from ._program.rows.ragged import Ragged as Ragged
    from ._program.tolerance.precision_report import Deviation as Deviation
    from ._program.tolerance.precision_report import PrecisionReport as PrecisionReport
    from ._program.tolerance.precision_report import Product as Product
    from ._report.axis_facts import AxisFacts as AxisFacts
    from ._report.comparisons import Collective as Collective
    from ._report.comparisons import Communication as Communication
    from ._report.comparisons import Frontier as Frontier
    from ._report.comparisons import Saving as Saving
    from ._report.comparisons import Strategy as Strategy
    from ._report.comparisons import Way as Way
    from ._report.plan_report import Report as Report
    from ._report.streamed import Streamed as Streamed
    from ._report.streamed import StreamStats as StreamStats
    from ._values.static_once import Static as Static
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "Fetch": "_devices.host",
            "DeviceFacts": "_devices.machine",
            "Machine": "_devices.machine",
            "DeviceSpeed": "_devices.speeds",
            "Pipeline": "_devices.pipeline",
            "Schedule": "_devices.pipeline",
            "Placement": "_devices.visualize",
            "Cause": "_diagnosis.retraces.cause",
            "Stats": "_diagnosis.counters.stats",
            "NoCompiles": "_diagnosis.jax_work",
            "Watch": "_diagnosis.jax_work",
            "Work": "_diagnosis.jax_work",
            "MemoryCourse": "_diagnosis.memory_course",
            "MemoryPeak": "_diagnosis.memory_course",
            "ExportedProgram": "_export.loading.loaded",
            "Loaded": "_export.loading.loaded",
            "Derivative": "_interface.derivatives.derivative",
            "Stacked": "_interface.stack",
            "CacheFacts": "_jax.compile_cache.cache",
            "Mesh": "_jax.mesh",
            "Measurement": "_measured.measure",
            "Timing": "_measured.measure",
            "Profile": "_measured.profile",
            "Verdict": "_measured.verdict",
            "PaddedRows": "_program.rows.ragged",
            "Ragged": "_program.rows.ragged",
            "Deviation": "_program.tolerance.precision_report",
            "PrecisionReport": "_program.tolerance.precision_report",
            "Product": "_program.tolerance.precision_report",
            "AxisFacts": "_report.axis_facts",
            "Collective": "_report.comparisons",
            "Communication": "_report.comparisons",
            "Frontier": "_report.comparisons",
            "Saving": "_report.comparisons",
            "Report": "_report.plan_report",
            "Strategy": "_report.comparisons",
            "Way": "_report.comparisons",
            "StreamStats": "_report.streamed",
            "Static": "_values.static_once",
            "Streamed": "_report.streamed",
        },
        private=False,
    )
