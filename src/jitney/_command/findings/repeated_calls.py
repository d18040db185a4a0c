"""Lines that do the same thing repeatedly, by the record of `lines.py`: compiled functions that
cost more to compile than their calls can save, loops of Python in which each call is for itself,
and arrays that are read back, each time with a wait for device and copy.

The first two need the number of calls at a line, and the seconds of the quickest. Python may wait
for less than the whole of a call, where a device computes beside it. For reads the saving is the
time that Python spent in them: an upper bound, since the computation takes its time, read or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..._owners import short
from ..._text.json import Record
from ..jax_log import CompileRecord, plain_name
from .change import ProposedChange

# Calls or reads of a loop from which on it is worth a line, and calls of a function that are few.
_AGAIN = 5
# Seconds of a call above which compiling may save something.
_QUICK = 1e-3


def unrepaid(
    compiled: Sequence[CompileRecord],
    lines: Sequence[Record],
) -> Iterator[ProposedChange]:
    """Yield the compiled functions that are called a few times, for less than a millisecond."""
    calls: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for each in lines:
        if each["kind"] == "call" and each["defined"] and each["quickest"] is not None:
            calls[each["defined"][0], each["name"]].append(each)
    for (file, name), places in calls.items():
        times = sum(each["times"] for each in places)
        quickest = min(each["quickest"] for each in places)
        spent = sum(each.seconds for each in _programs(compiled, file, name))
        if times >= _AGAIN or quickest >= _QUICK or spent <= times * quickest:
            continue
        each_call = spent / times + quickest
        yield ProposedChange(
            spent,
            at_most=True,
            what=(
                f"{name} was compiled in {spent:.2f} s for {times} calls, of which one takes"
                f" {quickest * 1e3:.2g} ms: that is repaid if a call takes more than"
                f" {each_call * 1e3:.3g} ms without jax.jit"
            ),
            where=f"{short(places[0]['file'])}:{places[0]['line']} ({places[0]['function']})",
            write=(
                f"{name} without jax.jit, if it is not called more often elsewhere;"
                f" jitney.measure({name}, ..., against=plain).repaid_after counts the calls"
            ),
        )


def loops(
    compiled: Sequence[CompileRecord],
    lines: Sequence[Record],
) -> Iterator[ProposedChange]:
    """Yield the loops of Python that are a `jax.vmap`: of calls of one program, none of which sees
    the result of another.
    """
    for each in lines:
        is_loop = each["kind"] == "call" and each["over"] and each["times"] >= _AGAIN
        if not is_loop or each["quickest"] is None:
            continue
        name, quickest = each["name"], each["quickest"]
        file = each["file"] if each["defined"] is None else each["defined"][0]
        # Elements of several shapes are not the rows of one array.
        if len(_programs(compiled, file, name)) > 1:
            continue
        over = " and ".join(each["over"])
        yield ProposedChange(
            (each["times"] - 1) * quickest,
            at_most=True,
            what=(
                f"{name} is called {each['times']} times in a loop over {over}, each time for"
                f" itself, {quickest * 1e3:.2g} ms and more a call: one call of its jax.vmap may do"
            ),
            where=f"{short(each['file'])}:{each['line']} ({each['function']})",
            write=_mapped(name, each),
        )


def _programs(
    compiled: Sequence[CompileRecord],
    file: str,
    name: str,
) -> list[CompileRecord]:
    """Return the programs of a function of a file."""
    return [
        each
        for each in compiled
        if plain_name(each.name) == name
        and file in (each.cause.file if each.cause else "", each.place.file if each.place else "")
    ]


def _mapped(name: str, place: Record) -> str:
    """Return the `jax.vmap` of a loop; its arguments are the elements, stacked."""
    over = set(place["mapped"])
    axes = ["0" if str(i) in over else "None" for i in range(place["given"])]
    keywords = over - {str(i) for i in range(place["given"])}
    if keywords or not axes:
        return (
            f"jax.jit(jax.vmap({name}))  # with {', '.join(sorted(keywords))} stacked, by position"
        )
    in_axes = "" if set(axes) == {"0"} else f", in_axes=({', '.join(axes)})"
    return f"jax.jit(jax.vmap({name}{in_axes}))  # of the elements, stacked: jnp.stack(...)"


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
