"""Worked examples: each folder is a small package with its README, tests and benchmark."""
