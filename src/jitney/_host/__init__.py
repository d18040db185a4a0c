"""This process and its machine: limits of cores and memory, the memory that is held, the time that
jitney itself takes, settings from the environment.
"""
