"""Detection of constants that overflow in a low type, such as -1e9 in a mask, which is -inf in
float16.

`replay.py` measures rounding; here a number is lost altogether. JAX converts most constants at
trace time, so the program in the low type holds infinities, and the author may have meant them. The
same program in the wide type decides: if it has a finite number on that line, the number was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .._jax.programs.jaxprs import is_literal, open_jaxpr, programs, runs, source_of
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, Atom, DType, Jaxpr, NumPyArray

_Constant = tuple[NumPyArray, str]
"""An array with the line that it is written on."""
_Known = Mapping[Atom, _Constant]
"""Variables of a program that are constants."""
# Primitives whose result has the numbers of their operand.
_MOVED = ("broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose")


def lost_constants(
    wide: AnyJaxpr,
    narrow: AnyJaxpr,
    low: DType,
) -> list[tuple[float, str]]:
    """Finite numbers of a program that are infinite in a low type, each with its line.

    Args:
        wide: The program as it is.
        narrow: The same program, traced with arguments in the low type.
        low: The low type.
    """
    meant: Counter[str] = Counter()
    for array, source in _constants(wide, {}, ""):
        meant[source] += bool(np.isinf(array).any())
    infinite: Counter[str] = Counter()
    for array, source in _constants(narrow, {}, ""):
        infinite[source] += bool(array.dtype == low and np.isinf(array).any())

    lost: dict[str, float] = {}
    for array, source in _constants(wide, {}, ""):
        # Every infinity of this line is one in the wide program too.
        if infinite[source] <= meant[source]:
            continue
        finite = array[np.isfinite(array)]
        with np.errstate(over="ignore"):
            too_large = finite[np.isinf(finite.astype(low))]
        if too_large.size:
            lost.setdefault(source, float(too_large.flat[0]))
    return [(number, source) for source, number in lost.items()]


def _constants(
    program: AnyJaxpr,
    arguments: _Known,
    seen_at: str,
) -> Iterator[_Constant]:
    """Real constants that equations read, converted ones too.

    `arguments` holds the arguments of the program that are constants outside.
    """
    plain, values = open_jaxpr(program)
    known: dict[Atom, _Constant] = {}
    for var, value in zip(plain.constvars, values, strict=True):
        if _is_real(value):
            known[var] = np.asarray(value), ""
    known.update(arguments)

    for eqn in plain.eqns:
        source = source_of(eqn, seen_at)
        operands = [_read(atom, known, source) for atom in eqn.invars]
        yield from filter(None, operands)

        # The result of a move or a conversion is a constant if its operand is.
        name = eqn.primitive.name
        moved = operands[0] if operands else None
        if moved is not None and name in _MOVED:
            known[eqn.outvars[0]] = moved
        if moved is not None and name == "convert_element_type":
            array, line = moved
            dtype = eqn.params["new_dtype"]
            if issubdtype(dtype, np.floating):
                with np.errstate(over="ignore"):
                    known[eqn.outvars[0]] = array.astype(dtype), line

        # Constants are followed into calls only; the arguments of other sub-jaxprs are not matched
        # to operands.
        called = runs(eqn)
        for inner in programs(eqn.params):
            passed = _constant_operands(inner, operands) if inner is called else {}
            yield from _constants(inner, passed, source)
    yield from (known[atom] for atom in plain.outvars if not is_literal(atom) and atom in known)


def _constant_operands(called: AnyJaxpr, operands: Sequence[_Constant | None]) -> _Known:
    """Arguments of a called program that are constants."""
    plain: Jaxpr = open_jaxpr(called)[0]
    pairs = zip(plain.invars, operands, strict=True)
    return {var: constant for var, constant in pairs if constant is not None}


def _read(
    atom: Atom,
    known: _Known,
    source: str,
) -> _Constant | None:
    if is_literal(atom):
        return (np.asarray(atom.val), source) if _is_real(atom.val) else None
    if atom not in known:
        return None
    array, line = known[atom]
    return array, line or source


def _is_real(value: object) -> bool:
    kind = getattr(value, "dtype", None) or type(value)
    return issubdtype(np.result_type(kind), np.floating)
