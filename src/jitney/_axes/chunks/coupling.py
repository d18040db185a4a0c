"""The statistic that makes a loss more than a sum of independent terms, for messages: a reduction
over the axis whose result enters terms that are reduced again.
"""

from __future__ import annotations

from .numbered import is_accumulated
from .passes import Passes


def coupling_statistic(passes: Passes) -> str:
    """The user's line of the first reduction that another reduction depends on; "" if there is
    none.
    """
    # Forward taint analysis: value -> the line of the reduction that it depends on.
    origin: dict[int, str] = {}
    planned = {id(node) for work in passes.passes for node in (*work.before, *work.nodes)}
    for node in passes.flat.steps:
        known = next((origin[n] for n in node.numbers if n in origin), None)
        for n in node.makes if id(node) in planned else ():
            if is_accumulated(node, n, passes.streamed):
                if known is not None:
                    return known
                origin[n] = node.op.place
            elif known is not None:
                origin[n] = known
    return ""
