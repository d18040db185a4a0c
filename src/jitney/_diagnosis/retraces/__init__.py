"""Why something was traced or compiled again, and the line that would avoid it.

trace_record.py   the key of a program, in a form that can be compared
history.py        the traces of a function; of the nearest earlier one
causes.py         the differences, each a `Cause` (`cause.py`)
closures.py       functions that are created anew
remedies.py       the fix of each cause
sentences.py      all differences in one line
cache_drops.py    `jax.clear_caches()`, after which nothing differs
"""
