"""The command line: programs as they are, functions by size, the machine, the cache. It stands
last, since it asks all others.
"""
