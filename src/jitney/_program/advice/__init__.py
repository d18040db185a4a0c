"""Proven remedies for retraces: buckets that let the sizes of earlier calls share programs, and
static numbers that can be arrays.

    advice.py            remedies of the causes that a user reads, each proven once
    recorded_calls.py    the calls that a proof repeats
    buckets.py           `pad={"n": "pow2"}`, or fitted to the sizes: which saves most programs
    annotations.py       names of sizes which have none; `order: Int[ArrayLike, ""]`
    proofs.py            the same function with such options and annotations, and what it proves
"""
