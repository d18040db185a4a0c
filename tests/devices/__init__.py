"""Tests of several devices; `nox -s tests-cpu8` gives them eight virtual ones."""
