"""Arrays that one line reads back repeatedly: each time Python waits for device and copy.

The saving is the time that Python spent in the reads. It is an upper bound, since the computation
takes its time, read or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..._owners import short
from ..._text.json import Record
from .change import ProposedChange

# Reads at one line from which on they count as those of a loop.
_AGAIN = 5
_WORDS = {
    "__float__": "float(x)",
    "__int__": "int(x)",
    "__bool__": "a test of x (`if x:`, `while x:`, `bool(x)`)",
    "__index__": "x as an index",
    "__complex__": "complex(x)",
    "__array__": "NumPy",
    "item": "x.item()",
    "tolist": "x.tolist()",
    "__repr__": "printing x",
    "__str__": "printing x",
    "__format__": "formatting x",
    "device_get": "jax.device_get(x)",
}
_DECIDES = (
    "jax.lax.while_loop or jax.lax.cond  # inside of one jax.jit, where it decides what comes next;"
    " jnp.where, where it selects"
)
_TAKES = (
    "keep x as it is, kept.append(x), and read once behind the loop: jax.device_get(kept); or"
    " jax.jit the whole loop, with jax.lax.scan"
)


def reads(seen: Sequence[Record]) -> Iterator[ProposedChange]:
    """Yield a change for each line and kind of read."""
    for each in seen:
        if each["kind"] != "read" or each["times"] < _AGAIN:
            continue
        how = _WORDS.get(each["how"], f"np.{each['how']}(x)")
        yield ProposedChange(
            each["seconds"],
            at_most=True,
            what=(
                f"an array of JAX is read back {each['times']} times, by {how}: Python waits there"
                " until it is computed, and for the copy"
            ),
            where=f"{short(each['file'])}:{each['line']} ({each['function']})",
            write=_DECIDES if each["how"] in ("__bool__", "__index__") else _TAKES,
        )
