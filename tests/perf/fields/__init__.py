"""Fifty-two bodies as public code writes them, in both precisions: `python -m tests.perf.fields`."""
