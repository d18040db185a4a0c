"""Command line: `python -m jitney run | report | doctor | bench | profile | monitor | ...`.

    $ python -m jitney run train.py
    arguments.py  parses the command, and imports the module that carries it out
    start.py      replaces the process by `python launch.py "" "" file train.py`
    launch.py     runs train.py as `__main__`, and records JAX's events as plain dicts
    findings/     records what its lines do with arrays, and finds what to change there
    jax_log.py    turns the events into programs with seconds, shapes and causes
    changes.py    ranks the changes that would save most
    run_report.py writes the report to stderr, or through page/ to a file

The other commands are in `machine/` (`doctor`, `monitor`), `bench/`, `capture.py` (`profile`),
`streaming/` (`stream`), `exported.py` (`show`), `reread.py` (`report`) and `cache/`.
Of the rest of jitney only `__main__.py` imports this folder, which may import all of it.
"""
