"""What of the models that people train can be padded, cut, accumulated and streamed: `python -m
tests.perf.coverage`.
"""
