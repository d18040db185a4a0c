"""Whether programs are verified. Each first call asks, and few are: what verifies
(`verification.py`) is imported for those.
"""

from __future__ import annotations

from .._signature.options import Options
from .._switches import VERIFY


def is_verified(options: Options) -> bool:
    """Whether programs with these options are run twice."""
    return options.disabled is None and (
        options.verify if options.verify is not None else VERIFY.on
    )
