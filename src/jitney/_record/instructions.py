"""What a code object is, and which names it reads, by its instructions.

Two processes compile the same text to the same instructions; comments, formatting, positions and
docstrings are not among them.
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

from .._jax.trees import is_a
from .by_name import ASKING, Site, site


def _numbers(*names: str) -> frozenset[int]:
    """Those of these instructions that this Python has."""
    return frozenset(dis.opmap[name] for name in names if name in dis.opmap)


_GLOBAL = _numbers("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CHAIN = _numbers("LOAD_ATTR", "LOAD_METHOD")
_IMPORT = _numbers("IMPORT_NAME")
_CHANGE = _numbers("STORE_GLOBAL", "DELETE_GLOBAL")
_SETS = _numbers("BUILD_SET", "SET_ADD", "SET_UPDATE")
_CONTAINS = [bytes([number]) for number in _numbers("CONTAINS_OP")]
_SMALL = _numbers("LOAD_SMALL_INT")  # of 3.14: it is its own argument
_CONSTANT = frozenset(number for name, number in dis.opmap.items() if name.startswith("LOAD_CONST"))
_OF_CONSTANTS = frozenset(dis.hasconst)
_FIRST = frozenset((number, 0) for number in _OF_CONSTANTS)
_SHIFTS = {
    **dict.fromkeys(_GLOBAL | _CHAIN | _IMPORT | _CHANGE, 0),
    **dict.fromkeys(_numbers("LOAD_GLOBAL"), 1),  # the last bit says that it is for a call
    # and that it is a method
    **dict.fromkeys(_numbers("LOAD_ATTR") if sys.version_info >= (3, 12) else (), 1),
}
"""By how many bits the number of an instruction is more than that of the name."""
_CACHE = b"\0"
_IS_KNOWN = sys.version_info < (3, 15)
"""Whether it was tried with this Python, on some 30,000 functions of each: 3.11 to 3.14. A later
one asks `dis`.
"""
_HAS_DOCSTRING = 0x4000000  # of 3.13
_TOLD, _MAKES = (
    re.compile(b"[" + re.escape(bytes(sorted(numbers))) + b"]")
    for numbers in (_GLOBAL | _IMPORT | _CHANGE, _SETS)
)
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Reads:
    """What the instructions of a code object, and of those inside it, name.

    Args:
        chains: Global names, each with the attributes that are asked for right behind it: `("np",
            "linalg", "norm")`.
        attributes: All attributes that are asked for, of whatever.
        words: What is written in its texts, of which patterns and formats make attributes.
        imports: Modules that it imports.
        changes: Global names that it sets or deletes.
        has_sets: Whether it makes a set, and does more than to look whether something is in there.
        blind: `getattr` or `hasattr`, where nobody sees what it asks for.
    """

    chains: tuple[tuple[str, ...], ...]
    attributes: frozenset[str]
    words: frozenset[str]
    imports: tuple[tuple[str, int], ...]
    changes: tuple[str, ...]
    has_sets: bool
    blind: frozenset[str]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """It, and the functions written inside of it."""
    yield code
    for constant in code.co_consts:
        if is_a(constant, CodeType):
            yield from codes_in(constant)


class Codes:
    """Code objects, each with what is known of it, by identity: those of two files are equal where
    their texts are.
    """

    def __init__(self) -> None:
        # by identity; held, so that it stays their own
        self._known: dict[int, tuple[CodeType, Any]] = {}

    def add(self, codes: Iterable[CodeType], what: Any) -> None:
        """Know this of them."""
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
def reads_of(code: CodeType) -> Reads:
    """What a code object names."""
    chains: dict[tuple[str, ...], None] = {}
    attributes: set[str] = set()
    words: set[str] = set()
    blind: set[str] = set()
    has_sets = False
    imports: dict[tuple[str, int], None] = {}
    changes: dict[str, None] = {}
    for part in codes_in(code):
        steps = _steps(part)
        for told in _TOLD.finditer(steps.numbers):
            at = told.start()
            step = steps.numbers[at]
            if step in _GLOBAL:
                chains[(steps.about(at), *_attributes_behind(steps, at + 1))] = None
            elif step in _IMPORT:
                imports[(steps.about(at), _level(steps, at))] = None
            elif step in _CHANGE:
                changes[steps.about(at)] = None
        has_sets = has_sets or any(
            steps.numbers[at + 1 : at + 2] not in _CONTAINS for at in _sets(steps, part)
        )
        for name, call in _sites(part):
            blind.update([name] if call is None else [])
            attributes.update([] if call is None or call.written is None else [call.written])
            chains.update([] if call is None or call.chain is None else [(call.chain, None)])
        attributes.update(part.co_names)  # global names too, which does no harm
        words.update(_words(part.co_consts[_documented(part) :]))
    return Reads(
        tuple(chains),
        frozenset(attributes),
        frozenset(words),
        tuple(imports),
        tuple(changes),
        has_sets,
        frozenset(blind),
    )


@lru_cache(maxsize=4096)
def calls_in(code: CodeType) -> dict[int, Site]:
    """The calls of `getattr` and `hasattr` in a code object, by the place of their instruction."""
    return {call.offset: call for _, call in _sites(code) if call is not None}


def _sites(code: CodeType) -> list[tuple[str, Site | None]]:
    """Where it names `getattr` or `hasattr`, and what it asks for there, if that is seen."""
    if ASKING.keys().isdisjoint(code.co_names):
        return []
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    return [
        (step.argval, site(steps, at))
        for at, step in enumerate(steps)
        if step.opcode in _GLOBAL and step.argval in ASKING
    ]


@dataclass(frozen=True)
class _Steps:
    """The instructions of a code object, but for those that only say more of the next one.

    Args:
        numbers: Which they are.
        arguments: What stands behind each.
        code: The code object.
    """

    numbers: bytes
    arguments: Sequence[int]
    code: CodeType

    def about(self, at: int) -> Any:
        """The name or the constant that one is about."""
        step = self.numbers[at]
        if step in _SHIFTS:
            return self.code.co_names[self.arguments[at] >> _SHIFTS[step]]
        if step in _SMALL:
            return self.arguments[at]
        return self.code.co_consts[self.arguments[at]] if step in _CONSTANT else None


def _steps(code: CodeType) -> _Steps:
    """The instructions. `dis` says more of them, and takes ten times as long, for which the first
    call of a process would wait.
    """
    if not _IS_KNOWN:
        said = [step for step in dis.get_instructions(code) if step.opcode != dis.EXTENDED_ARG]
        return _Steps(bytes(step.opcode for step in said), [step.arg or 0 for step in said], code)
    every = code.co_code[::2]
    numbers, arguments = every.translate(None, _CACHE), [*compress(code.co_code[1::2], every)]
    if dis.EXTENDED_ARG in numbers:
        return _extended(numbers, arguments, code)
    return _Steps(numbers, arguments, code)


def _extended(numbers: bytes, arguments: Sequence[int], code: CodeType) -> _Steps:
    """With what stands behind them in whole, where it is longer than a byte."""
    short, whole, higher = bytearray(), list[int](), 0
    for number, low in zip(numbers, arguments, strict=True):
        argument, higher = higher | low, 0
        if number == dis.EXTENDED_ARG:
            higher = argument << 8
        else:
            short.append(number)
            whole.append(argument)
    return _Steps(bytes(short), whole, code)


def _sets(steps: _Steps, code: CodeType) -> Iterator[int]:
    """Where a set is made, or one is loaded that is written there."""
    yield from (told.start() for told in _MAKES.finditer(steps.numbers))
    if frozenset in map(type, code.co_consts):
        yield from (
            at
            for at, step in enumerate(steps.numbers)
            if step in _CONSTANT and is_a(steps.about(at), frozenset)
        )


def _words(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if is_a(constant, str):
            yield from _WORD.findall(constant)
        elif is_a(constant, tuple):
            yield from _words(constant)


def _attributes_behind(steps: _Steps, at: int) -> Iterator[str]:
    while at < len(steps.numbers) and steps.numbers[at] in _CHAIN:
        yield steps.about(at)
        at += 1


def _level(steps: _Steps, at: int) -> int:
    """How many packages up an import begins; -1 where that is not written as expected."""
    level: Any = steps.about(at - 2) if at >= 2 else None
    return level if is_a(level, int) else -1


@lru_cache(maxsize=4096)
def digest_of(code: CodeType) -> str:
    """The same for equal instructions, whatever the file and the line."""
    digest = hashlib.blake2b(digest_size=20)
    documented = _documented(code)
    parts: tuple[Any, ...] = (
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
        digest.update(f"{_constant(None if documented and at == 0 else constant)};".encode())
    return digest.hexdigest()


def _documented(code: CodeType) -> bool:
    """Whether the first constant is a docstring and nothing else."""
    if not code.co_consts or not is_a(code.co_consts[0], str):
        return False
    return not _asks_for_first(code.co_code)


def _asks_for_first(instructions: bytes) -> bool:
    """Whether an instruction asks for the first constant. Two bytes each, since Python 3.6; a
    larger number has more of them in front.
    """
    numbers = instructions[::2]
    if _FIRST.isdisjoint(zip(numbers, instructions[1::2], strict=True)):
        return False
    if dis.EXTENDED_ARG not in numbers:
        return True
    is_longer = False
    for opcode, number in zip(numbers, instructions[1::2], strict=True):
        if opcode in _OF_CONSTANTS and number == 0 and not is_longer:
            return True
        is_longer = opcode == dis.EXTENDED_ARG and (number != 0 or is_longer)
    return False


def _constant(value: Any) -> str:
    if is_a(value, CodeType):
        return f"code {digest_of(value)}"
    if is_a(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if is_a(value, frozenset):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__} {value!r}"
