"""Digests of a program and its arguments that are the same in another process, for checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import jaxlib
import numpy as np

from .._axes import Passes
from .._jax.programs.evaluation import Ref
from .._jax.programs.jaxprs import is_literal, open_jaxpr, programs
from .._jax.typed import JaxprEqn
from .._processes.compare_processes import digest
from .host_code import host_code


def program_key(passes: Passes) -> list[object]:
    """Every equation with its parameters and constants, those inside loops and calls too."""
    nodes = [
        (_describe_equation(node.op.eqn), list(map(_read, node.reads)), node.makes)
        for node in passes.flat.nodes
    ]
    directions = [turn.back for turn in passes.passes]
    numbers = [value_key(x) for x in passes.numbers.values()]
    return [nodes, directions, numbers]


def _read(ref: Ref) -> object:
    """A value by its number in the program; a literal by its content."""
    return ref if isinstance(ref, int) else value_key(ref.value)


def _describe_equation(eqn: JaxprEqn) -> tuple[str, list[object]]:
    """Printed form of an equation, with constants and callback code, which JAX does not print."""
    # JAX prints functions among the parameters with their addresses, which change per process.
    text = re.sub(r"0x[0-9a-f]+", "", str(eqn))
    return text, [*map(value_key, _constants(eqn)), *_callback_code(eqn)]


def _callback_code(eqn: JaxprEqn) -> Iterator[str]:
    yield from host_code(eqn)
    for part in programs(eqn.params):
        for inside in open_jaxpr(part)[0].eqns:
            yield from _callback_code(inside)


def _constants(eqn: JaxprEqn) -> Iterator[object]:
    yield from (atom.val for atom in eqn.invars if is_literal(atom))
    for part in programs(eqn.params):
        program, constants = open_jaxpr(part)
        yield from constants
        for inside in program.eqns:
            yield from _constants(inside)


def value_key(x: Any) -> tuple[object, ...]:
    """Dtype, shape and digest of the numbers of a value."""
    array = x if hasattr(x, "dtype") and hasattr(x, "shape") else np.asarray(x)
    return str(array.dtype), tuple(array.shape), digest(array)


def platform() -> tuple[str, ...]:
    """Versions of JAX and jaxlib, and the kind of the default device."""
    device = jax.devices()[0]
    version: str = getattr(jaxlib, "__version__")  # noqa: B009 - the stubs do not export it
    return jax.__version__, version, device.platform, device.device_kind
