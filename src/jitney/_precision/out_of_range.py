"""Detection of constants that overflow in a low type, such as -1e9 in a mask, which is -inf in
float16.

`replay.py` measures rounding; here a number is lost altogether. JAX converts most constants at
trace time, so the program in the low type holds infinities, and the author may have meant them. The
same program in the wide type decides: if it has a finite number on that line, the number was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._jax.jaxprs import is_literal, opened, programs, runs, source_of
from .._jax.trees import issubdtype
from .._jax.typed import DType

# An array with the line that it is written on.
_Constant = tuple[Any, str]
# Primitives whose result has the numbers of their operand.
_MOVED = ("broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose")


def lost_constants(wide: object, narrow: object, low: DType) -> list[tuple[float, str]]:
    """Finite numbers of a program that are infinite in a low type, each with its line.

    Args:
        wide: The program as it is.
        narrow: The same program, traced with arguments in the low type.
        low: The low type.
    """
    meant = Counter(source for array, source in _constants(wide, {}, "") if np.isinf(array).any())
    infinite = Counter(
        source
        for array, source in _constants(narrow, {}, "")
        if array.dtype == low and np.isinf(array).any()
    )
    found: dict[str, float] = {}
    for array, source in _constants(wide, {}, ""):
        # Every infinity of this line is one in the wide program too.
        if infinite[source] <= meant[source]:
            continue
        finite = array[np.isfinite(array)]
        with np.errstate(over="ignore"):
            lost = finite[np.isinf(finite.astype(low))]
        if lost.size:
            found.setdefault(source, float(lost.flat[0]))
    return [(number, source) for source, number in found.items()]


def _constants(
    program: object, given: Mapping[Any, _Constant], seen_at: str
) -> Iterator[_Constant]:
    """Real constants that equations read, converted ones too.

    `given` holds the arguments of the program that are constants outside.
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
        # Constants are followed into calls only; the arguments of other sub-jaxprs are not matched
        # to operands.
        called = runs(eqn)
        for inner in programs(eqn.params):
            names = opened(inner)[0].invars
            passed = (
                {var: constant for var, constant in zip(names, read, strict=True) if constant}
                if inner is called
                else {}
            )
            yield from _constants(inner, passed, source)
    yield from (known[atom] for atom in plain.outvars if not is_literal(atom) and atom in known)


def _read(atom: Any, known: Mapping[Any, _Constant], source: str) -> _Constant | None:
    if is_literal(atom):
        return (np.asarray(atom.val), source) if _is_real(atom.val) else None
    if atom not in known:
        return None
    array, line = known[atom]
    return array, line or source


def _is_real(value: object) -> bool:
    kind = getattr(value, "dtype", None) or type(value)
    return issubdtype(np.result_type(kind), np.floating)
