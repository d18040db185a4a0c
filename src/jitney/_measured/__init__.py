"""What calls take, measured so that it can be believed: two ways in turn, equal results first, and
a verdict by a stated rule.
"""
