"""Mixed precision: the autocast of products, its policies, and measurements of its error.

    z = dot_general x y   ->   z = dot_general (bf16 x) (bf16 y), preferred_element_type=float32

`autocast` evaluates a jaxpr under a `Policy` (`policy.py`). `product_labels.py` finds the argument
or module that feeds each product, by which policies choose. `replay.py` measures what the rounding
costs, and `lost_constants` finds numbers that overflow in a low type.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .low_products import Tally as Tally
    from .low_products import autocast as autocast
    from .low_products import tallies as tallies
    from .out_of_range import lost_constants as lost_constants
    from .policy import FULL as FULL
    from .policy import LOW as LOW
    from .policy import Policy as Policy
    from .policy import is_line as is_line
    from .policy import tokens as tokens
    from .product_labels import Label as Label
    from .product_labels import ProductSite as ProductSite
    from .products import SOLVERS as SOLVERS
    from .products import breaks_low as breaks_low
    from .products import elsewhere as elsewhere
    from .products import has_kernels as has_kernels
    from .replay import Probe as Probe
    from .replay import in_double as in_double
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "Label": "product_labels",
            "ProductSite": "product_labels",
            "Tally": "low_products",
            "autocast": "low_products",
            "tallies": "low_products",
            "lost_constants": "out_of_range",
            "FULL": "policy",
            "LOW": "policy",
            "Policy": "policy",
            "is_line": "policy",
            "tokens": "policy",
            "SOLVERS": "products",
            "breaks_low": "products",
            "elsewhere": "products",
            "has_kernels": "products",
            "Probe": "replay",
            "in_double": "replay",
        },
    )
