"""Programs as files: what a program does, with its contract and its plan, without the code that it
was made of.
"""
