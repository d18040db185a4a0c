"""Derivatives at one set of arguments, by kind: what `Derived` computes when it is called."""
