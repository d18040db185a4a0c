"""Schema of the header of a file, validated after the digest: a header that violates it was not
written by jitney.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeGuard, TypeVar

from .._errors import ExportError, JitneyError, format_error
from .contract_data import Json
from .trees import Tree
from .values import Data

T = TypeVar("T")
Symbol = Sequence[Any]
"""A symbolic size: the name of its axis, its least and its largest value."""


class ArrayEntry(TypedDict):
    """Shape, dtype and weak type of an array; a symbolic size is an expression as text."""

    path: str
    shape: Sequence[int | str]
    dtype: str
    weak: bool


class BoundEntry(TypedDict):
    """An array that a program is bound to; with `impl`, one of random keys."""

    number: int
    dtype: str
    shape: list[int]
    impl: str | None


class BlockEntry(TypedDict):
    """A block of rows as its program takes them.

    Args:
        rows: How many there are.
        shapes: Shapes of the arrays of a row in the program, of which `arrays` has the true ones.
        takes: Of each array, whether its padding may hold anything.
        axes: The filled axes, whose true sizes follow the arrays.
        cuts: The filled axes of each result.
        near: The axes of unlike lengths of each result, of rows that run at exact size.
        numbers: True sizes, and the numbers that Python computes from them, which follow the sizes;
            None if the program takes none.
    """

    rows: int
    shapes: list[list[int]]
    takes: list[bool]
    axes: list[str]
    cuts: list[object]
    near: list[list[int]]
    numbers: list[list[Data]] | None


class PaddingEntry(TypedDict):
    """A bucket, whose program takes true sizes behind its arrays.

    Args:
        shapes: Shapes of the arrays in the program, of which `arrays` has the true ones.
        axes: The filled axes, whose true sizes follow the arrays.
        cuts: The filled axes of each result.
        numbers: True sizes, and the numbers that Python computes from them, which follow the sizes;
            None if the program takes all sizes of the bucket.
    """

    shapes: list[list[int]]
    axes: list[str]
    cuts: list[object]
    numbers: list[list[Data]] | None


class RowsEntry(TypedDict):
    """Rows of unlike lengths, which a file takes.

    Args:
        axis: The axis of `vmap`.
        arguments: The parameters that have rows.
        ragged: The option.
        symbols: Symbol -> padded axis.
        shapes: Shapes of the arrays of a row, in which symbols stand for sizes.
    """

    axis: str
    arguments: list[str]
    ragged: str
    symbols: Mapping[str, str]
    shapes: list[Sequence[int | str]]


class ProgramEntry(TypedDict):
    """A lowered program, for one set of sizes, for all sizes of a range, or for a block of rows."""

    sizes: Mapping[str, int | list[int]]
    symbols: Mapping[str, Symbol]
    arrays: list[ArrayEntry]
    results: list[ArrayEntry]
    result: Tree
    checks: list[list[str]]
    platforms: list[str]
    calling_convention: int
    x64: bool
    plan: Mapping[str, object]
    plan_text: str
    block: NotRequired[BlockEntry]
    padding: NotRequired[PaddingEntry]


class Header(TypedDict):
    """Header of a file; one that was read has this form if `check_header` accepts it."""

    jitney: str
    jax: str
    jaxlib: str
    name: str
    doc: str | None
    checks_contract: bool
    contract: Json
    f64: bool
    arguments: Mapping[str, Tree]
    bound: list[BoundEntry]
    programs: list[ProgramEntry]
    vjp_order: int
    left: list[list[str]]
    settings: list[list[str]]
    rows: NotRequired[RowsEntry | None]


class _Row(tuple[object, ...]):
    """A list of fixed length with these kinds, in this order."""

    __slots__ = ()


_TEXT, _NUMBER = (str, type(None)), (int, type(None))
_AVAL = {"path": str, "shape": [(int, str)], "dtype": str, "weak": bool}
_PROGRAM = {
    "sizes": dict,
    "symbols": dict,
    "arrays": [_AVAL],
    "results": [_AVAL],
    "result": dict,
    "checks": [[str]],
    "platforms": [str],
    "calling_convention": int,
    "x64": bool,
    "plan": dict,
    "plan_text": str,
}
_CONTRACT = {
    "where": _Row((str, _TEXT, _NUMBER)),
    "parameters": [{"name": str, "kind": str, "hint": {"text": str}}],
    "result": {"text": str},
}
_HEADER = {
    "jitney": str,
    "jax": str,
    "jaxlib": str,
    "name": str,
    "doc": _TEXT,
    "checks_contract": bool,
    "contract": _CONTRACT,
    "f64": bool,
    "arguments": dict,
    "bound": [{"number": int, "dtype": str, "shape": [int], "impl": _TEXT}],
    "programs": [_PROGRAM],
    "vjp_order": int,
    "left": [_Row((str, str))],
    "settings": [_Row((str, str))],
}
_BLOCK = {
    "rows": int,
    "shapes": [[int]],
    "takes": [bool],
    "axes": [str],
    "cuts": [[_Row((int, dict, str))]],
    "near": [[int]],
    "numbers": (list, type(None)),
}
_PADDING = {
    "shapes": [[int]],
    "axes": [str],
    "cuts": [[_Row((int, (dict, str), _TEXT))]],
    "numbers": (list, type(None)),
}
_ROWS = {"axis": str, "arguments": [str], "ragged": str, "symbols": dict, "shapes": [[(int, str)]]}
_SYMBOL = _Row((str, int, int))
_RANGE = _Row((int, int))
_WRONG = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, re.error)
"""Exceptions that Python raises when data are not of the expected form."""


def check_header(header: Header, where: str) -> None:
    """Check that a header has every field that is read, with the right kinds.

    Raises:
        ExportError: It does not.
    """
    if not _is(header, _HEADER) or not header["programs"]:
        raise ExportError(_foreign(where), code="J290")

    # The kinds are right; now the parts must agree with each other.
    programs = header["programs"]
    arguments = [
        (tree, len(program["arrays"]))
        for tree in header["arguments"].values()
        for program in programs
    ]
    results = [(program["result"], len(program["results"])) for program in programs]
    symbols = [symbol for program in programs for symbol in program["symbols"].values()]
    are_trees = all(_is_tree(*tree) for tree in (*arguments, *results))
    if not are_trees or not all(_is(symbol, _SYMBOL) for symbol in symbols):
        raise ExportError(_foreign(where), code="J290")
    names = [parameter["name"] for parameter in header["contract"]["parameters"]]
    if [*header["arguments"]] != names:
        raise ExportError(_foreign(where), code="J290")
    numbers = made_of_header(
        lambda: [number for tree in header["arguments"].values() for number in _numbers(tree)],
        where,
    )

    # Arguments and bound arrays together fill each array of each program.
    filled = {*numbers, *(array["number"] for array in header["bound"])}
    sizes = [size for program in programs for size in program["sizes"].values()]
    if any(filled != {*range(len(program["arrays"]))} for program in programs):
        raise ExportError(_foreign(where), code="J290")
    if not all(isinstance(size, int) or _is(size, _RANGE) for size in sizes):
        raise ExportError(_foreign(where), code="J290")
    if not all(map(_is_padding, programs)):
        raise ExportError(_foreign(where), code="J290")
    if header.get("rows") is not None and not _are_rows(header):
        raise ExportError(_foreign(where), code="J290")


def _are_rows(header: Header) -> bool:
    """Return whether the programs of a file are those of rows."""
    blocks = [program.get("block") for program in header["programs"]]
    if not _is(header.get("rows"), _ROWS) or not _is(blocks, [_BLOCK]):
        return False
    counts = [len(program["arrays"]) for program in header["programs"]]
    return all(
        len(block["shapes"]) == len(block["takes"]) == count
        for block, count in zip(map(block_of, header["programs"]), counts, strict=True)
    )


def _is_padding(program: ProgramEntry) -> bool:
    """Return whether a program has no padding, or one that fits its arrays and results."""
    padding = program.get("padding")
    if padding is None:
        return True
    if not _is(padding, _PADDING) or len(padding["cuts"]) != len(program["results"]):
        return False
    names = [name for name, _, _ in program["symbols"].values()]
    shapes = zip(program["arrays"], padding["shapes"], strict=False)
    return (
        names == padding["axes"]
        and len(padding["shapes"]) == len(program["arrays"])
        and all(len(told["shape"]) == len(shape) for told, shape in shapes)
    )


def block_of(program: ProgramEntry) -> BlockEntry:
    """Return how a program of rows takes them; `check_header` has seen that it has this entry."""
    block = program.get("block")
    if block is None:
        raise AssertionError("a program of rows without a block")
    return block


def is_members(listed: Any) -> TypeGuard[list[list[Any]]]:
    """Return whether a value is a list of names and lengths of members."""
    return _is(listed, [_Row((str, int))]) and all(length >= 0 for _, length in listed)


def made_of_header(make: Callable[[], T], where: str) -> T:
    """Call `make`, which reads the header, and return its result.

    Raises:
        ExportError: The header is not what jitney writes.
    """
    try:
        return make()
    except JitneyError:
        raise
    except _WRONG as error:
        raise ExportError(_foreign(where), code="J290") from error


def _foreign(where: str) -> str:
    return format_error(
        where,
        "its header was not written by jitney.",
        "What is loaded is a file of `f.export(...)`.",
        "export it again; its digest is right, so it was not damaged on its way.",
    )


def _is_tree(tree: Tree, count: int) -> bool:
    """Return whether data are a tree whose array numbers are below `count`."""
    if not _is(tree, {"is": str}):
        return False
    if tree["is"] == "array":
        return _is(tree, {"number": int, "scalar": _TEXT}) and 0 <= tree["number"] < count
    if tree["is"] in ("static", "none"):
        return "value" in tree or tree["is"] == "none"
    items = tree.get("items")
    if not isinstance(items, list):
        return False
    if tree["is"] in ("tuple", "list"):
        return all(_is_tree(part, count) for part in items)
    is_class = tree["is"] in ("module", "named", "record")
    of_class = {"class": _Row((str, str)), "static": [_Row((str, list))]}
    if is_class and not _is(tree, of_class):
        return False
    if not is_class and tree["is"] not in ("dict", "ordered"):
        return False
    row = _Row((str if is_class else list, dict))
    return all(_is(part, row) and _is_tree(part[1], count) for part in items)


def _numbers(tree: Tree) -> list[int]:
    """Numbers of the arrays in a tree."""
    if tree["is"] == "array":
        return [tree["number"]]
    numbers: list[int] = []
    for part in tree.get("items", ()):
        numbers += _numbers(part if isinstance(part, dict) else part[1])
    return numbers


# Kinds: a dict lists required fields, a list has the kind of its elements, a `_Row` one kind per
# element, and a plain tuple of types lists alternatives.
def _is(value: object, kind: Any) -> bool:
    if type(kind) is dict:
        if not isinstance(value, dict):
            return False
        return all(name in value and _is(value[name], part) for name, part in kind.items())
    if type(kind) is _Row:
        if not isinstance(value, list) or len(value) != len(kind):
            return False
        return all(map(_is, value, kind))
    if type(kind) is list:
        return isinstance(value, list) and all(_is(part, kind[0]) for part in value)
    return isinstance(value, kind)
