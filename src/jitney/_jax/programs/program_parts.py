"""What a program computes by, as bytes: its operations and its constants, at any depth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from ..arrays import bytes_of
from ..trees import attribute, extended, issubdtype, words_of_keys
from .jaxprs import is_literal, open_jaxpr, programs

_ADDRESS = re.compile("0x[0-9a-f]+")


def program_parts(
    jaxpr: object,
    constants: tuple[object, ...] = (),
) -> Iterator[bytes]:
    """Yield all that a program computes by; with the constants of an open jaxpr, if it has any."""
    # Addresses of objects differ from trace to trace.
    text = _ADDRESS.sub("", str(open_jaxpr(jaxpr)[0]))
    yield f"{len(text)} {text}".encode()
    for value in (*constants, *_constants(jaxpr)):
        yield content_of(value)


def content_of(value: object) -> bytes:
    """Return the bits of an array or a number, random keys among them."""
    is_key = issubdtype(attribute(value, "dtype", np.float32), extended)
    return bytes_of(words_of_keys(value) if is_key else value).tobytes()


def _constants(jaxpr: object) -> Iterator[object]:
    """Yield the constants and literals of a program and of those inside, whose text has none."""
    program, values = open_jaxpr(jaxpr)
    yield from values
    for eqn in program.eqns:
        yield from (atom.val for atom in eqn.invars if is_literal(atom))
        for part in programs(eqn.params):
            yield from _constants(part)


def written_by(params: Mapping[str, object]) -> list[bytes]:
    """Return the parts of the function that a scatter writes by: the user's, of `x.at[i].apply(f)`;
    else it follows from the name.
    """
    program = params.get("update_jaxpr")
    if program is None:
        return []
    constants = cast("Sequence[object]", params.get("update_consts") or ())
    return [*program_parts(program, tuple(constants))]
