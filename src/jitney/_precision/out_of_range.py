"""Constants that are infinite in a low type: -1e9 in a mask, which float16 does not have.

It stands beside `replay.py`, which measures rounding: here a number is lost altogether. JAX
converts most constants while it traces, so the program in the low type holds infinities, and
somebody may have meant them. The same program in the wide type tells: there the line has a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._jax.jaxprs import is_written, opened, programs, runs, source_of
from .._jax.trees import issubdtype, type_of

_jnp: Any = jnp
_Constant = tuple[Any, str]  # an array, and the line that it is written on
# of the same numbers
_MOVED = ("broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose")


def lost_constants(wide: Any, narrow: Any, low: np.dtype[Any]) -> list[tuple[float, str]]:
    """The finite numbers of a program that are infinite in a low type, each with its line.

    Args:
        wide: The program as it is.
        narrow: The same, of arguments in the low type.
        low: That type.
    """
    meant = Counter(source for array, source in _constants(wide, {}, "") if np.isinf(array).any())
    infinite = Counter(
        source
        for array, source in _constants(narrow, {}, "")
        if array.dtype == low and np.isinf(array).any()
    )
    found: dict[str, float] = {}
    for array, source in _constants(wide, {}, ""):
        if infinite[source] <= meant[source]:
            continue
        finite = array[np.isfinite(array)]
        with np.errstate(over="ignore"):
            lost = finite[np.isinf(finite.astype(low))]
        if lost.size:
            found.setdefault(source, float(lost.flat[0]))
    return [(number, source) for source, number in found.items()]


def _constants(program: Any, given: Mapping[Any, _Constant], seen_at: str) -> Iterator[_Constant]:
    """The real numbers that operations read, those that were converted too. `given` holds arguments
    that are known.
    """
    plain, values = opened(program)
    known = {
        **{
            var: (np.asarray(value), "")
            for var, value in zip(plain.constvars, values, strict=True)
            if _is_real(value)
        },
        **given,
    }
    for eqn in plain.eqns:
        source = source_of(eqn, seen_at)
        read = [_read(atom, known, source) for atom in eqn.invars]
        yield from (constant for constant in read if constant is not None)
        name = eqn.primitive.name
        if name in _MOVED and read[0] is not None:
            known[eqn.outvars[0]] = read[0]
        elif (
            name == "convert_element_type"
            and read[0] is not None
            and issubdtype(eqn.params["new_dtype"], np.floating)
        ):
            with np.errstate(over="ignore"):
                converted = read[0][0].astype(eqn.params["new_dtype"])
            known[eqn.outvars[0]] = converted, read[0][1]
        called = runs(eqn)
        for inner in programs(eqn.params):
            names = opened(inner)[0].invars
            passed = (
                {var: constant for var, constant in zip(names, read, strict=True) if constant}
                if inner is called
                else {}
            )
            yield from _constants(inner, passed, source)
    yield from (known[atom] for atom in plain.outvars if not is_written(atom) and atom in known)


def _read(atom: Any, known: Mapping[Any, _Constant], source: str) -> _Constant | None:
    if is_written(atom):
        return (np.asarray(atom.val), source) if _is_real(atom.val) else None
    if atom not in known:
        return None
    array, line = known[atom]
    return array, line or source


def _is_real(value: Any) -> bool:
    kind: Any = getattr(value, "dtype", None) or type_of(value)
    return issubdtype(np.result_type(kind), np.floating)
