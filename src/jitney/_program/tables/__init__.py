"""Tables by which a call finds its entry: layouts, entries, and takers of arguments."""
