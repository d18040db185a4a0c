"""One commit against another: `python -m tests.perf.commits --against COMMIT`.

- `benches.py`: quick benchmarks of what users call.
- `worker.py`: a process that imports the source of one side and measures what it is told to.
- `pairs.py`: two such processes, one for each side, that take turns; and the source of a commit.
- `judged.py`: a verdict for each figure, by the pairs.
- `saved.py`: the figures as files of pytest-benchmark.
- `__main__.py`: the table, and the exit code.
"""
