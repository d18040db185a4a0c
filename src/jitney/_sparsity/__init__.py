"""Sparse derivatives: which elements of a result depend on which of an argument, and how few
directions find them all.

The pattern is read off the program of the derivative itself, products of it with directions, so it
holds for all values of the arguments, and a function's own derivative rule counts as it will be
used. Values of the arguments are never tried.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .at_any_size import coloured as coloured
    from .colours.star import has_symmetric_hessian as has_symmetric_hessian
    from .colours.ways import REVERSE as REVERSE
    from .colours.ways import WAYS as WAYS
    from .colours.ways import Mode as Mode
    from .colours.ways import Way as Way
    from .jacobian_mode import Made as Made
    from .jacobian_mode import UnknownPositions as UnknownPositions
    from .jacobian_mode import elements as elements
    from .jacobian_mode import jacobian as jacobian
    from .jacobian_mode import possible as possible
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "coloured": "at_any_size",
            "REVERSE": "colours.ways",
            "WAYS": "colours.ways",
            "Way": "colours.ways",
            "has_symmetric_hessian": "colours.star",
            "Made": "jacobian_mode",
            "UnknownPositions": "jacobian_mode",
            "Mode": "colours.ways",
            "elements": "jacobian_mode",
            "jacobian": "jacobian_mode",
            "possible": "jacobian_mode",
        },
    )
