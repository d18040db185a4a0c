"""Several processes as one run: how they start, their channel, their agreement, their
checkpoints.
"""
