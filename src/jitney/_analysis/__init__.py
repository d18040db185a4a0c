"""Reports about a program, made by tracing and compiling it: memory, communication, precision, and
its uses of named axes.
"""
