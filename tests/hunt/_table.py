"""Which operations are padded and cut, and which are refused with what reason: `python -m
tests.hunt --table` prints it for the docs.

Each line of the tables of operations is planned by itself, along the axis that has a name.
"""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitney

from . import _sizes, _structure
from ._draw import ALL, Case, Expression, Writer
from ._hunt import taken
from ._options import _filled, _planned
from ._recipe import CLASSES, Recipe

MODULES: Mapping[str, Any] = {
    "jnp": jnp,
    "lax": jax.lax,
    "jax.nn": jax.nn,
    "jnp.linalg": jnp.linalg,
    "jnp.fft": jnp.fft,
    "jax.ops": jax.ops,
}
LEFT_OUT = {
    "reads or writes files and text": (
        "array_repr array_str from_dlpack frombuffer fromfile fromiter fromstring get_printoptions "
        "load printoptions save savez set_printoptions"
    ),
    "answers about types and shapes, not arrays": (
        "can_cast einsum_path isdtype isrealobj isscalar issubdtype iterable promote_types"
        " ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike broadcast_shapes"
        " conv_dimension_numbers conv_general_permutations conv_general_shape_tuple"
        " conv_shape_tuple conv_transpose_shape_tuple reduce_window_shape_tuple"
        " get_scaled_dot_general_config"
    ),
    "needs a mesh axis by hand, or a token": (
        "after_all create_token dce_sink pbroadcast pcast precv psend pswapaxes "
        "psum_scatter_start ragged_all_to_all stage with_sharding_constraint"
    ),
    "takes an object of its own that says what it does": (
        "polynomial ragged_dot_general scaled_dot_general"
    ),
}


def public() -> Iterator[str]:
    """Every function of the modules that the hunt is over."""
    for prefix, module in MODULES.items():
        for name in dir(module):
            value = getattr(module, name)
            if (
                callable(value)
                and not name.startswith("_")
                and not name.endswith("_p")
                and not isinstance(value, type | types.ModuleType)
            ):
                yield f"{prefix}.{name}"


def covered(name: str) -> bool:
    """Whether a line calls it, or a reason says why none does."""
    said = {word for words in LEFT_OUT.values() for word in words.split()}
    return name.rpartition(".")[2] in said or any(calls(recipe, name) for recipe in ALL)


def calls(recipe: Recipe, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", recipe.text) is not None


def planned(recipe: Recipe, n: int = 7) -> dict[str, str | None] | None:
    """Why a line by itself is refused under `pad` and under `chunk`; None where plain JAX has no
    such line.
    """
    dtypes = [
        name for name in ("float32", "int32", "complex64", "bool") if name in CLASSES[recipe.takes]
    ]
    for seed, dtype in enumerate(dtypes or ["float32"]):
        case = Case(seed, 0, dtype, "int32", "normal", n, ())
        with case.numbers():
            made = _first(case, recipe)
            if made is None:
                continue
            fn = made.program.compiled()
            arrays = taken(made.program, case.arrays(n))
            try:
                jax.eval_shape(fn, **arrays)
            except Exception:  # noqa: BLE001
                continue
            ways = {
                "pad": _filled(jitney.optimize(pad={"n": "pow2"})(fn)),
                "chunk": _planned(jitney.optimize(chunk={"n": 3})(fn)),
            }
            return {name: _asked(way, arrays) for name, way in ways.items()}
    return None


def _first(case: Case, recipe: Recipe) -> Expression | None:
    for seed in range(8):
        writer = Writer(_Along(seed), case, "r")
        if "{q}" not in recipe.text:
            del writer.avals["q0"]
        made = writer.alone(recipe)
        if made is not None:
            return made
    return None


class _Along:
    """Draws, of which every axis is the one with a name."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def random(self) -> float:
        return 0.5

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rng, name)


def _asked(way: Any, arrays: Any) -> str | None:
    try:
        why = way(arrays)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}".splitlines()[0]
    if why is None:
        return None
    why = re.sub(r".*cannot be cut into chunks: (it )?|hunted\.py:\d+ \([^)]*\) ", "", why).strip(
        " ."
    )
    return (
        "needs to know a size"
        if why.startswith("needs to know a size")
        else re.sub(r"\bd0\b", "n", why)
    )


def table() -> str:
    """Markdown: of each function that is refused in some way, the ways and the reasons; then those
    that never are.
    """
    rows, free, absent = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # lines about something else than the functions that they call
        mixed = {*_structure.RECIPES, *_sizes.RECIPES}
        facts = {recipe.text: planned(recipe) for recipe in ALL if recipe not in mixed}
    for name in public():
        mine = {
            text: said
            for text, said in facts.items()
            if said is not None and calls(Recipe(text), name)
        }
        if not mine:
            absent += (
                [name] if not covered(name) or any(calls(recipe, name) for recipe in ALL) else []
            )
            continue
        cells = [_cell([said[option] for said in mine.values()]) for option in ("pad", "chunk")]
        if cells == ["yes", "yes"]:
            free.append(name)
        else:
            rows.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    head = ["| operation | `pad` | `chunk`, `jitney.stream` |", "|---|---|---|"]
    tail = [
        "",
        f"Padded and cut wherever they were tried: {', '.join(f'`{name}`' for name in free)}.",
    ]
    return "\n".join([*head, *rows, *tail, "", f"Not in the table: {', '.join(absent) or 'none'}."])


def _cell(reasons: list[str | None]) -> str:
    said = list(dict.fromkeys(why for why in reasons if why is not None))
    if not said:
        return "yes"
    text = "; ".join(said[:2])
    return text if None not in reasons else f"partly: {text}"


if __name__ == "__main__":
    print(table())
