"""Digest of a code object, and the names that it reads, by its instructions.

Two processes compile the same source to the same instructions; comments, formatting, positions and
docstrings do not enter the digest.

    def f(x): return np.linalg.norm(x) * SCALE
    reads_of(f.__code__).chains         # (("np", "linalg", "norm"), ("SCALE",))
    reads_of(f.__code__).attributes     # {"np", "linalg", "norm", "SCALE"}
"""

from __future__ import annotations

import dis
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from types import CodeType
from typing import Any

from .dynamic_attrs import ASKING, GetattrSite, getattr_site


def _numbers(*names: str) -> frozenset[int]:
    """Opcodes of the given instructions that exist in this Python."""
    return frozenset(dis.opmap[name] for name in names if name in dis.opmap)


_GLOBAL = _numbers("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CHAIN = _numbers("LOAD_ATTR", "LOAD_METHOD")
_IMPORT = _numbers("IMPORT_NAME")
_CHANGE = _numbers("STORE_GLOBAL", "DELETE_GLOBAL")
_SETS = _numbers("BUILD_SET", "SET_ADD", "SET_UPDATE")
_CONTAINS = [bytes([number]) for number in _numbers("CONTAINS_OP")]
# Python 3.14: the argument is the integer itself
_SMALL = _numbers("LOAD_SMALL_INT")
_CONSTANT = frozenset(number for name, number in dis.opmap.items() if name.startswith("LOAD_CONST"))
_OF_CONSTANTS = frozenset(dis.hasconst)
_FIRST = frozenset((number, 0) for number in _OF_CONSTANTS)
_SHIFTS = {
    **dict.fromkeys(_GLOBAL | _CHAIN | _IMPORT | _CHANGE, 0),
    # the lowest bit marks a load for a call
    **dict.fromkeys(_numbers("LOAD_GLOBAL"), 1),
    # the lowest bit marks a method
    **dict.fromkeys(_numbers("LOAD_ATTR") if sys.version_info >= (3, 12) else (), 1),
}
"""Number of low bits of an instruction's argument that are not part of the index of the name."""
_CACHE = b"\0"
_IS_KNOWN = sys.version_info < (3, 15)
"""True for the Python versions that the fast decoder was tried with, on some 30,000 functions each:
3.11 to 3.14. Later ones use `dis`.
"""
# flag of Python 3.13
_HAS_DOCSTRING = 0x4000000
_TOLD, _MAKES = (
    re.compile(b"[" + re.escape(bytes(sorted(numbers))) + b"]")
    for numbers in (_GLOBAL | _IMPORT | _CHANGE, _SETS)
)
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class CodeReads:
    """Names that a code object and its nested functions read.

    Args:
        chains: Global names, each with the attributes that directly follow: `("np", "linalg",
            "norm")`.
        attributes: All attributes that are read, of whatever object.
        words: Words in text constants, which patterns and format strings may use as attributes.
        imports: Modules that it imports, each with the level of a relative import.
        changes: Global names that it sets or deletes.
        has_sets: Whether it makes a set, other than as the right operand of `in`.
        blind: `getattr` or `hasattr`, if a call of it has unknown operands.
    """

    chains: tuple[tuple[str, ...], ...]
    attributes: frozenset[str]
    words: frozenset[str]
    imports: tuple[tuple[str, int], ...]
    changes: tuple[str, ...]
    has_sets: bool
    blind: frozenset[str]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


class Codes:
    """Map from code objects to information, by identity: equal code objects may be of different
    files.
    """

    def __init__(self) -> None:
        # by id; the code object is stored as well, so that its id is not reused
        self._known: dict[int, tuple[CodeType, object]] = {}

    def add(self, codes: Iterable[CodeType], what: object) -> None:
        """Attach `what` to these code objects."""
        self._known.update((id(code), (code, what)) for code in codes)

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._known

    def __getitem__(self, code: CodeType) -> Any:
        return self._known[id(code)][1]

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[tuple[CodeType, Any]]:
        return iter(self._known.values())


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> CodeReads:
    """Return the names that a code object reads."""
    chains: dict[tuple[str, ...], None] = {}
    attributes: set[str] = set()
    words: set[str] = set()
    blind: set[str] = set()
    has_sets = False
    imports: dict[tuple[str, int], None] = {}
    changes: dict[str, None] = {}
    for part in codes_in(code):
        steps = _steps(part)

        # The regular expression finds the opcodes that matter without a Python loop over all of
        # them.
        for match in _TOLD.finditer(steps.numbers):
            at = match.start()
            step = steps.numbers[at]
            if step in _GLOBAL:
                chains[(steps.name(at), *_attribute_chain(steps, at + 1))] = None
            elif step in _IMPORT:
                imports[(steps.name(at), _level(steps, at))] = None
            elif step in _CHANGE:
                changes[steps.name(at)] = None
        # `x in {1, 2}` compiles to a frozenset followed by CONTAINS_OP, where the order does not
        # matter.
        has_sets = has_sets or any(
            steps.numbers[at + 1 : at + 2] not in _CONTAINS for at in _sets(steps, part)
        )
        for name, call in _sites(part):
            if call is None:
                blind.add(name)
                continue
            if call.literal_name is not None:
                attributes.add(call.literal_name)
            if call.chain is not None:
                chains[call.chain] = None
        # includes global names, which only makes the set larger
        attributes.update(part.co_names)
        words.update(_words(part.co_consts[_has_docstring(part) :]))
    return CodeReads(
        tuple(chains),
        frozenset(attributes),
        frozenset(words),
        tuple(imports),
        tuple(changes),
        has_sets,
        frozenset(blind),
    )


@lru_cache(maxsize=4096)
def calls_in(code: CodeType) -> dict[int, GetattrSite]:
    """Map the offset of each call of `getattr` or `hasattr` in a code object to its operands."""
    return {call.offset: call for _, call in _sites(code) if call is not None}


def _sites(code: CodeType) -> list[tuple[str, GetattrSite | None]]:
    """Return the loads of `getattr` and `hasattr`, each with the call it is for, if its operands
    are known.
    """
    if ASKING.keys().isdisjoint(code.co_names):
        return []
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    return [
        (step.argval, getattr_site(steps, at))
        for at, step in enumerate(steps)
        if step.opcode in _GLOBAL and step.argval in ASKING
    ]


@dataclass(frozen=True)
class _Steps:
    """Instructions of a code object without EXTENDED_ARG.

    Args:
        numbers: Opcodes.
        arguments: Arguments, in full.
        code: The code object.
    """

    numbers: bytes
    arguments: Sequence[int]
    code: CodeType

    def name(self, at: int) -> str:
        """Return the name that an instruction of `_SHIFTS` refers to."""
        return self.code.co_names[self.arguments[at] >> _SHIFTS[self.numbers[at]]]

    def about(self, at: int) -> object:
        """Return the name or the constant that an instruction refers to."""
        step = self.numbers[at]
        if step in _SHIFTS:
            return self.name(at)
        if step in _SMALL:
            return self.arguments[at]
        return self.code.co_consts[self.arguments[at]] if step in _CONSTANT else None


def _steps(code: CodeType) -> _Steps:
    """Decode the instructions. `dis` shows more of them and takes ten times as long, which would
    delay the first call of a process.
    """
    if not _IS_KNOWN:
        steps = [step for step in dis.get_instructions(code) if step.opcode != dis.EXTENDED_ARG]
        numbers = bytes(step.opcode for step in steps)
        return _Steps(numbers, [step.arg or 0 for step in steps], code)

    # Two bytes each, opcode and argument; inline cache entries have opcode 0.
    every = code.co_code[::2]
    numbers = every.translate(None, _CACHE)
    arguments = [*compress(code.co_code[1::2], every)]
    if dis.EXTENDED_ARG in numbers:
        return _merge_prefixes(numbers, arguments, code)
    return _Steps(numbers, arguments, code)


def _merge_prefixes(
    numbers: bytes,
    arguments: Sequence[int],
    code: CodeType,
) -> _Steps:
    """Merge EXTENDED_ARG prefixes into the arguments of the instructions that follow."""
    short = bytearray()
    whole: list[int] = []
    higher = 0
    for number, low in zip(numbers, arguments, strict=True):
        argument = higher | low
        higher = 0
        if number == dis.EXTENDED_ARG:
            higher = argument << 8
        else:
            short.append(number)
            whole.append(argument)
    return _Steps(bytes(short), whole, code)


def _sets(steps: _Steps, code: CodeType) -> Iterator[int]:
    """Yield the positions at which a set is made, or a constant set is loaded."""
    yield from (match.start() for match in _MAKES.finditer(steps.numbers))
    if frozenset in map(type, code.co_consts):
        yield from (
            at
            for at, step in enumerate(steps.numbers)
            if step in _CONSTANT and isinstance(steps.about(at), frozenset)
        )


def _words(constants: Iterable[object]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield from _WORD.findall(constant)
        elif isinstance(constant, tuple):
            yield from _words(constant)


def _attribute_chain(steps: _Steps, at: int) -> Iterator[str]:
    while at < len(steps.numbers) and steps.numbers[at] in _CHAIN:
        yield steps.name(at)
        at += 1


def _level(steps: _Steps, at: int) -> int:
    """Return the level of a relative import; -1 if the instructions have another form."""
    # IMPORT_NAME follows the loads of the level and of the names to import.
    level = steps.about(at - 2) if at >= 2 else None
    return level if isinstance(level, int) else -1


@lru_cache(maxsize=4096)
def digest_of(code: CodeType) -> str:
    """Return a digest that is equal for equal instructions, whatever the file and the line."""
    digest = hashlib.blake2b(digest_size=20)
    documented = _has_docstring(code)
    parts = (
        code.co_code,
        code.co_name,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & ~_HAS_DOCSTRING,
        code.co_exceptiontable,
    )
    digest.update(repr(parts).encode())
    for at, constant in enumerate(code.co_consts):
        # A docstring counts as None, and nested code objects by their own digests.
        counted = None if documented and at == 0 else constant
        digest.update(f"{_constant(counted)};".encode())
    return digest.hexdigest()


def _has_docstring(code: CodeType) -> bool:
    """Return whether the first constant is a docstring that no instruction loads."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    return not _asks_for_first(code.co_code)


def _asks_for_first(instructions: bytes) -> bool:
    """Return whether an instruction loads the first constant. Instructions have two bytes since
    Python 3.6; an EXTENDED_ARG prefix makes the argument longer.
    """
    numbers = instructions[::2]
    if _FIRST.isdisjoint(zip(numbers, instructions[1::2], strict=True)):
        return False
    if dis.EXTENDED_ARG not in numbers:
        return True

    # Slow path: 0 may be the low byte of a larger argument.
    is_longer = False
    for opcode, number in zip(numbers, instructions[1::2], strict=True):
        if opcode in _OF_CONSTANTS and number == 0 and not is_longer:
            return True
        is_longer = opcode == dis.EXTENDED_ARG and (number != 0 or is_longer)
    return False


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return f"code {digest_of(value)}"
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__} {value!r}"
