"""Stages that cut a long axis into chunks: a named one, a mapped one, and where nothing is cut."""
