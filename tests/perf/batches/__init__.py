"""Batches that a program is run on: 24 programs as public documentation writes them under
`jax.jit(jax.vmap(...))`. The second half was written after the order of the trials was frozen.
"""

from .batch import Batch as Batch
from .batch import plain as plain
from .first import FIRST as FIRST
from .second import SECOND as SECOND
