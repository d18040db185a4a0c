"""Uncompiled calls: a function, one kind of its calls, its plan, and how it runs without `jit`."""
