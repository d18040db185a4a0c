"""A function and one kind of its calls, before anything is compiled: what it is, its plan, and how
it runs without `jit`.
"""
