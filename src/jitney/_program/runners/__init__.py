"""Runners of calls: whole, padded, over a mesh, in chunks, in threads, with run-time checks and
with captured arrays. Each runs the calls of one specialisation (`compiled_calls.py`).
"""
