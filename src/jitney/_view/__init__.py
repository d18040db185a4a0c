"""One call as data: the layout of its leaves, their named axes, true sizes, and the form of its
result.
"""
