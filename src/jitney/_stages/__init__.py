"""The stages, and their order from the outside to the inside.

Fill is outermost: shapes are what Jit is keyed by, so arrays are padded before. Jit comes next: it
donates buffers, which exist only there. Saved, which is `remat="auto"`, stands outside Vmap,
because all examples share the memory, and outside Roll, because what is saved of a loop is chosen
by its turns. Roll, which is `roll="auto"`, looks at what will be compiled. Chunk is a loop inside
the program. Vmap stands outside Mask, Remat and Precision, because an annotation says what the body
sees, and those act on the body. Mask traces the body with the two inside it. Remat stands outside
Precision: the reverse saves extra low-precision copies. Place stands outside Jit, which is told
where arguments lie; Shard just inside, where results are.
"""

from .chunk import Chunk as Chunk
from .fill import Fill as Fill
from .jit import Jit as Jit
from .mask import Mask as Mask
from .place import Place as Place
from .precision import Precision as Precision
from .remat import Remat as Remat
from .roll import Roll as Roll
from .saved import Saved as Saved
from .shard import Shard as Shard
from .vmap import Vmap as Vmap

PIPELINE = (Fill, Place, Jit, Saved, Roll, Shard, Chunk, Vmap, Mask, Remat, Precision)
