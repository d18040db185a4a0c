"""A program with symbolic sizes, and a trace at a size that is at hand: are they the same, and may
the code have looked at the size?
"""
