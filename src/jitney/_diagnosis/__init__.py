"""What a program asks while it runs: counters, why it was traced again, tracer errors, the first
NaN.
"""
