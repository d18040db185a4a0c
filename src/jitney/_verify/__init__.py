"""Verification of programs: each new one is also run as plain `jax.jit`, and the results are
compared.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .enabled import is_verified as is_verified
    from .verification import Verification as Verification
    from .verification import VerifiedRunner as VerifiedRunner
    from .verification import forecast as forecast
    from .verification import tells as tells
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "is_verified": "enabled",
            "Verification": "verification",
            "VerifiedRunner": "verification",
            "forecast": "verification",
            "tells": "verification",
        },
    )
