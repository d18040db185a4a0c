"""What devices send each other in two programs, to be compared."""

from collections import Counter
from typing import Any

from jitney._jax.xla.hlo import collectives


def sent(lowered: Any, mesh: Any) -> Counter[tuple[str, tuple[str, ...], int, bool]]:
    """How often each kind of collective runs along which axis of the mesh, with its bytes, and
    whether in a loop.
    """
    found = collectives(lowered.compile().as_text(), dict(mesh.shape))
    return Counter((each.kind, each.along, each.bytes, each.in_loop) for each in found)
