"""The switch of verification. Each first call reads it, and few programs are verified: only for
those is the machinery (`verification.py`) imported.
"""

from __future__ import annotations

from .._host.switches import SETTINGS
from .._signature.options import Options


def is_verified(options: Options) -> bool:
    """Return whether programs with these options are run twice."""
    return options.disabled is None and (
        options.verify if options.verify is not None else SETTINGS.now.verify
    )
