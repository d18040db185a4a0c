"""A pickler that copies the functions of `__main__`, as those do that are made for workers, and
what they refer to. It is a small one: no function of its own refers to itself.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
import types
from typing import Any

import jax
import jaxtyping


def dumps(value: object) -> bytes:
    """Pickle a value for a process whose `__main__` is another."""
    file = io.BytesIO()
    _Copying(file).dump(value)
    return file.getvalue()


class _Copying(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and obj.__module__ == "__main__":
            code, names = obj.__code__, obj.__globals__
            read = {name: names[name] for name in code.co_names if name in names}
            cells = [cell.cell_contents for cell in obj.__closure__ or ()]
            hints = dict(obj.__annotations__)
            return _function, (marshal.dumps(code), obj.__qualname__, read, cells, hints)
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, type) and issubclass(obj, jaxtyping.AbstractArray):
            kind: Any = obj
            return _hint, (kind.dtype.__name__, kind.dim_str)
        return NotImplemented


def _function(
    code: bytes,
    name: str,
    read: dict[str, object],
    cells: list[object],
    hints: dict[str, object],
) -> object:
    loaded = marshal.loads(code)
    closure = tuple(map(types.CellType, cells))
    function = types.FunctionType(loaded, {"__name__": "__main__", **read}, closure=closure)
    function.__qualname__ = name
    function.__annotations__ = hints
    return function


def _hint(kind: str, axes: str) -> object:
    # The name of `jax.Array` does not lead to it, so it is copied too.
    names = {"__module__": jax.Array.__module__, "__qualname__": jax.Array.__qualname__}
    return getattr(jaxtyping, kind)[type("Array", (), names), axes]
