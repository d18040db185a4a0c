"""Contracts as JSON data: the signature with its annotations, so that a loaded program checks a
call as the original function does.

A class in an annotation is recorded by name. Static values are compared elsewhere (`trees.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from .._contract.contract import Contract, Parameter
from .._errors import Where
from .._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Dim,
    Hint,
    ModuleHint,
    ScalarHint,
    TreeHint,
    UnionHint,
)
from .values import Find, LeftOut, NoData, data_of, import_object, value_of

Json = Mapping[str, Any]
"""A JSON object."""
_KINDS = {"tuple": tuple, "list": list, "dict": dict}
# fields of `Dim` that are written
_DIM = ("text", "kind", "name", "size", "expr", "broadcast", "variadic", "per_leaf")
_SORTS = {
    sort.name: sort
    for sort in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    )
}


def contract_data(contract: Contract, without: Collection[str]) -> Json:
    """Convert a contract to data, without the bound parameters."""
    where = contract.where
    return {
        "where": [where.name, where.file, where.line],
        "parameters": [
            _parameter(parameter)
            for parameter in contract.parameters
            if parameter.name not in without
        ],
        "result": _hint(contract.result),
    }


def _parameter(parameter: Parameter) -> Json:
    data: dict[str, object] = {
        "name": parameter.name,
        "kind": _sort(parameter.kind),
        "hint": _hint(parameter.hint),
    }
    if parameter.has_default:
        try:
            data["default"] = data_of(parameter.default)
        except NoData:
            # The parameter becomes required.
            data["default"] = None
    return data


def _sort(kind: int) -> str:
    return next(name for name, sort in _SORTS.items() if sort == kind)


def _default(data: Json, find: Find) -> object:
    if "default" not in data:
        return inspect.Parameter.empty
    return LeftOut() if data["default"] is None else value_of(data["default"], find)


def _hint(hint: Hint) -> Json:
    match hint:
        case ArrayHint():
            dtypes = None if hint.dtypes is None else [_dtype(dtype) for dtype in hint.dtypes]
            dims = [{name: getattr(dim, name) for name in _DIM} for dim in hint.dims]
            return {
                "is": "array",
                "text": hint.text,
                "dims": dims,
                "dtypes": dtypes,
                "array_like": hint.array_like,
            }
        case ScalarHint():
            return {"is": "scalar", "text": hint.kind}
        case UnionHint():
            return {
                "is": "union",
                "text": hint.text,
                "options": [_hint(option) for option in hint.options],
            }
        case TreeHint():
            return {
                "is": "tree",
                "text": hint.text,
                "leaf": _hint(hint.leaf),
                "structure": hint.structure,
            }
        case ContainerHint() if (
            hint.kind.__name__ in _KINDS and hint.kind is _KINDS[hint.kind.__name__]
        ):
            items = [_hint(item) for item in hint.items]
            return {
                "is": hint.kind.__name__,
                "text": hint.text,
                "items": items,
                "variadic": hint.variadic,
                "keys": list(hint.keys),
            }
        case ModuleHint():
            return {
                "is": "module",
                "text": hint.text,
                "class": [hint.cls.__module__, hint.cls.__qualname__],
            }
        case _:
            # A loaded program does not check hints of other kinds, but shows their text.
            return {"is": "any", "text": hint.text}


def _dtype(dtype: str | re.Pattern[str]) -> object:
    return dtype if isinstance(dtype, str) else {"pattern": dtype.pattern}


def contract_of(data: Json, find: Find = import_object) -> Contract:
    """Convert data back to a contract."""
    parameters = tuple(
        Parameter(
            told["name"],
            _SORTS[told["kind"]],
            _hint_of(told["hint"], find),
            "default" in told,
            _default(told, find),
        )
        for told in data["parameters"]
    )
    return Contract(Where(*data["where"]), parameters, _hint_of(data["result"], find))


def _hint_of(data: Json, find: Find) -> Hint:
    match data["is"]:
        case "array":
            dtypes = None if data["dtypes"] is None else tuple(map(_dtype_of, data["dtypes"]))
            dims = tuple(Dim(**dim) for dim in data["dims"])
            return ArrayHint(dims, dtypes, data["text"], data["array_like"])
        case "scalar":
            return ScalarHint(data["text"])
        case "union":
            options = tuple(_hint_of(option, find) for option in data["options"])
            return UnionHint(options, data["text"])
        case "tree":
            return TreeHint(_hint_of(data["leaf"], find), data["structure"], data["text"])
        case "tuple" | "list" | "dict":
            items = tuple(_hint_of(item, find) for item in data["items"])
            kind, keys = _KINDS[data["is"]], tuple(data["keys"])
            return ContainerHint(kind, items, data["variadic"], data["text"], keys)
        case "module":
            # A class that cannot be imported is not checked.
            cls = find(*data["class"])
            if cls is None:
                return AnyHint(f"`{data['text']}` cannot be imported here")
            return ModuleHint(cls, data["text"])
        case _:
            return AnyHint()


def _dtype_of(data: str | Json) -> str | re.Pattern[str]:
    return data if isinstance(data, str) else re.compile(data["pattern"])


class _Written(str):
    """An annotation in the author's spelling, shown without quotes in a signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature_of(contract: Contract, data: Json) -> inspect.Signature:
    """Return the signature, with annotations in the author's spelling."""
    texts = {told["name"]: told["hint"]["text"] for told in data["parameters"]}
    return inspect.Signature(
        [
            inspect.Parameter(
                parameter.name,
                cast(Any, parameter.kind),
                default=parameter.default,
                annotation=inspect.Parameter.empty
                if texts[parameter.name] == "Any"
                else _Written(texts[parameter.name]),
            )
            for parameter in contract.parameters
        ],
        return_annotation=inspect.Signature.empty
        if data["result"]["text"] == "Any"
        else _Written(data["result"]["text"]),
    )
