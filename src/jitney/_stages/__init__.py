"""Stages of a call, and their order from the outside to the inside.

`Plan.make` asks each stage for a decision over shapes, outside-in; `Plan.build` then wraps the body
inside-out. For `vmap="batch", pad={"n": "pow2"}` the function that Jit compiles is

    vmap(mask(body))        with n=100 padded to 128 around the program

- Fill is outermost: Jit is keyed by shapes, so arrays are padded before.
- Place stands outside Jit, which needs to know where arguments lie.
- Jit donates buffers, which exist only there.
- AutoRemat (`remat="auto"`) stands outside Vmap, because all examples share the memory, and outside
  Roll, because what is saved of a loop is chosen per iteration.
- Roll (`roll="auto"`) looks at the program that will be compiled.
- Shard stands just inside Jit, where results are; under an outer trace it places the arguments too.
- Chunk is a loop inside the program.
- Vmap stands outside Mask, Remat and Precision: an annotation describes what the body sees, and
  those act on the body.
- Mask traces the body with Remat and Precision inside it.
- Remat stands outside Precision: in the other order low-precision copies would be saved as well.
"""

from .chunking.chunk import Chunk as Chunk
from .chunking.mapped_chunks import MappedChunks as MappedChunks
from .fill import Fill as Fill
from .jit import Jit as Jit
from .mask import Mask as Mask
from .precision import Precision as Precision
from .remat import AutoRemat as AutoRemat
from .remat import Remat as Remat
from .roll import Roll as Roll
from .shard import Shard as Shard
from .sharding import Place as Place
from .vmap import Vmap as Vmap

PIPELINE = (Fill, Place, Jit, AutoRemat, Roll, Shard, Chunk, Vmap, Mask, Remat, Precision)
