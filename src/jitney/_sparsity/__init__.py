"""Sparse derivatives: detect the sparsity pattern of a Jacobian, and find few directions that give
all of its elements.

    fn: R^6 -> R^6, tridiagonal   ->  pattern of 16 elements (`dependence`)
                                  ->  3 colours, columns of one colour share no row (`colours`)
                                  ->  3 forward passes, elements put back (`compressed`)

The pattern is read off the jaxpr of the derivative, products of the Jacobian with directions. So it
holds for all values of the arguments, and a custom derivative rule counts as it will be used.
Values of the arguments are never tried.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .at_any_size import coloured_jacobian as coloured_jacobian
    from .colours.colouring import has_symmetric_hessian as has_symmetric_hessian
    from .colours.modes import REVERSE as REVERSE
    from .colours.modes import WAYS as WAYS
    from .colours.modes import Mode as Mode
    from .colours.modes import PassMode as PassMode
    from .jacobian_mode import JacobianResult as JacobianResult
    from .jacobian_mode import UnknownPositions as UnknownPositions
    from .jacobian_mode import elements as elements
    from .jacobian_mode import jacobian as jacobian
    from .jacobian_mode import possible as possible
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "coloured_jacobian": "at_any_size",
            "REVERSE": "colours.modes",
            "WAYS": "colours.modes",
            "PassMode": "colours.modes",
            "has_symmetric_hessian": "colours.colouring",
            "JacobianResult": "jacobian_mode",
            "UnknownPositions": "jacobian_mode",
            "Mode": "colours.modes",
            "elements": "jacobian_mode",
            "jacobian": "jacobian_mode",
            "possible": "jacobian_mode",
        },
    )
