"""Former names and forms, which work for two versions and warn (docs/versions.md).

`_lazy.py` asks this module for a name that jitney does not have. Nothing is made an attribute of
the package, so that each line that uses a former name gets its warning.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Final

from ._errors import Where, format_error
from ._owners import users_level

REMOVED_IN: Final = "0.5.0"
"""Version in which former names and forms no longer work."""
MOVED: Final = {
    name: module
    for module, names in {
        "analysis": "axes communication frontier precision_report strategy visualize",
        "errors": (
            "AxisError BudgetError CompileError ContractError DataError DerivativeError"
            " DonationError ExportError MeshError NonFiniteError OptionError PrecisionError"
            " ProcessError StateError StaticError TraceError VerificationError"
        ),
        "processes": "Checkpoints Processes distributed from_processes",
        "simulation": "Device Share Simulation Sweep Traffic simulate",
        "states": "DerivedField State derived",
        "types": (
            "AxisFacts CacheFacts Cause Collective Communication Derivative Deviation DeviceFacts"
            " ExportedProgram Fetch Frontier Loaded Machine Measurement Mesh NoCompiles Pipeline"
            " Placement PrecisionReport Product Profile Report Saving Schedule Stacked Stats"
            " Strategy StreamStats Streamed Timing Verdict Watch Way Work"
        ),
    }.items()
    for name in names.split()
}
"""Former name of the top level -> the module that has it now."""


def warn_former(
    where: Where | str,
    what: str,
    rule: str,
    fix: str,
) -> None:
    """Warn, at the user's line, of a name or a form that goes in `REMOVED_IN`."""
    text = format_error(where, what, f"{rule} The old form goes in jitney {REMOVED_IN}.", fix)
    warnings.warn(text, DeprecationWarning, stacklevel=users_level())


def find(name: str) -> object | None:
    """Return the value of a former name, with a warning for the line that uses it; None for a name
    that jitney never had.
    """
    home = MOVED.get(name)
    if home is None:
        return None
    # Frames: this function, `__getattr__` of the package, and the line that uses the name.
    frame = inspect.currentframe()
    used = frame and frame.f_back and frame.f_back.f_back
    # `from jitney import X` asks twice: Python's import system first, which would warn too often.
    if used is None or used.f_globals.get("__name__") != "importlib._bootstrap":
        warnings.warn(
            f"jitney.{name} is now jitney.{home}.{name}. The former name works until jitney"
            f" {REMOVED_IN}, which removes it (docs/versions.md).",
            DeprecationWarning,
            stacklevel=3,
        )
    return getattr(importlib.import_module(f"jitney.{home}"), name)
