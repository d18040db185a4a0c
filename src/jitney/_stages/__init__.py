"""The stages, and their order from the outside to the inside.

Jit is outermost: it donates buffers, which exist only there. Vmap comes before Remat and Precision, because an annotation says what
the body sees, and those two act on the body. Remat stands outside Precision: the reverse saves extra low-precision copies.
"""

from .jit import Jit as Jit
from .precision import Precision as Precision
from .remat import Remat as Remat
from .vmap import Vmap as Vmap

PIPELINE = (Jit, Vmap, Remat, Precision)
