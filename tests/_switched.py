"""Settings of the process that tests change, and change back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jitney
from jitney._switches import VERIFY


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables for the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def configured(*, verify: bool) -> Iterator[None]:
    """`jitney.configure(verify=...)` for the block."""
    jitney.configure(verify=verify)
    try:
        yield
    finally:
        VERIFY.turn(None)
