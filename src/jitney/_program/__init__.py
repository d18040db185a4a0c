"""Calls: from the key of a call to the compiled program that runs it. Begin with `entry.py`."""
