"""Mistakes that the core of the tests has to see.

`python -m tests.mutations` makes each in a copy of the project, and runs the tests that should
fail.
"""
