"""Counters of a program: how JAX's reports reach them, and what users read of them.

    a trace, a lowering, a compile     JAX reports it, and `listener.py` finds whose it is
    a call, the size of a padded axis  the program counts it itself, in its `Counters`
    f.stats                            both, as data and as a table (`stats.py`)

Only a trace or a compile is reported, so a warm call pays for its own count alone.
"""
