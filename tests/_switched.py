"""Settings of the process that tests change, and change back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jitney
from jitney._host.switches import SETTINGS


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
def configured(**settings: Any) -> Iterator[None]:
    """`jitney.configure(verify=...)` or the like for the block."""
    jitney.configure(**settings)
    try:
        yield
    finally:
        SETTINGS.configure(dict.fromkeys(settings))
