"""A module that bodies of `test_looks_out_of_sight.py` reach without naming what it holds."""


def hidden(x):
    """Other numbers by the size, where the size is known; at size 3 those of any size."""
    n = x.shape[0]
    return x * (float(n % 7) if type(n) is int else 3.0)
