"""Which statistic of a whole axis its elements wait for, for people: why a loss is no sum of terms
of one element each.
"""

from __future__ import annotations

from .numbered import is_accumulated
from .passes import Passes


def waiting(passes: Passes) -> str:
    """The line of the first reduction whose result goes back into elements that are put together
    again; "" if it has none.
    """
    origin: dict[int, str] = {}
    planned = {id(node) for work in passes.passes for node in (*work.before, *work.nodes)}
    for node in passes.flat.nodes:
        known = next((origin[n] for n in node.numbers if n in origin), None)
        for n in node.makes if id(node) in planned else ():
            if is_accumulated(node, n, passes.streamed):
                if known is not None:
                    return known
                origin[n] = node.op.place
            elif known is not None:
                origin[n] = known
    return ""
