"""What the author wrote: type hints as data, arguments and their names, static values, options,
buckets.
"""
