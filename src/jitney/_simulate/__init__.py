"""Devices on paper: programs compiled for them, run on none, and their figures."""
