"""Identity of Python values: when a program that was traced for some may run for others.

Values of static arguments have keys and copies. Objects that may change in place have their state
compared, and what a trace reads of them is recorded.
"""
