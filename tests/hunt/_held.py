"""The arguments of a program in one object: a module, a registered dataclass or a NamedTuple, whose
fields alone name the axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Shaped

import jitney
from jitney import optimize

from ._options import Arrays, Option, Way, _chunk, _filled, _planned, plain
from ._program import Program
from ._sizes import pick

_CODE = {
    "module": 'type(eqx.Module)("Held", (eqx.Module,), {{"__annotations__": {fields}}})',
    "dataclass": (
        "jax.tree_util.register_dataclass("
        '__import__("dataclasses").make_dataclass("Held", {fields}.items()))'
    ),
    "tuple": '__import__("typing").NamedTuple("Held", {fields}.items())',
}


def holder(kind: str, program: Program) -> Any:
    """A class with one field for each argument of a program."""
    fields = {name: Shaped[Array, axes] for name, axes in program.takes}
    if kind == "module":
        return type(eqx.Module)("Held", (eqx.Module,), {"__annotations__": fields})
    if kind == "tuple":
        return NamedTuple("Held", list(fields.items()))
    made: Any = dataclasses.make_dataclass("Held", list(fields.items()))
    return jax.tree_util.register_dataclass(made)


def _held(
    rng: Any,
    fn: Callable[..., Any],
    program: Program,
    options: dict[str, Any],
    streamed: Any = None,
) -> Way:
    kind = str(pick(rng, tuple(_CODE)))
    names = tuple(name for name, _ in program.takes)
    cls = holder(kind, program)

    def body(held: Any) -> Any:
        return fn(**{name: getattr(held, name) for name in names})

    made = optimize(**options)(body)
    # A stream says in its plan of chunks what it cannot do.
    shown = made if streamed is None else optimize(chunk=streamed)(body)
    refusal = _filled(shown) if "pad" in options else _planned(shown)

    fields = ", ".join(f'"{name}": Shaped[Array, "{axes}"]' for name, axes in program.takes)
    maker = _CODE[kind].format(fields=f"{{{fields}}}")
    given = "f(**{each: getattr(held, each) for each in " + repr(names) + "})"
    listed = ", ".join(f"{name}={value!r}" for name, value in options.items())
    run = f"optimize({listed})(lambda held: {given})"
    call = f"{run}(cls(**a))"
    if streamed is not None:
        call = f"jitney.stream({run}, cls(**a), chunk={streamed!r}, progress=False).result"

    def ours(arrays: Arrays) -> Any:
        value = cls(**{name: arrays[name] for name in names})
        if streamed is None:
            return made(value)
        return jitney.stream(made, value, chunk=streamed, progress=False).result

    return Way(
        ours,
        plain(fn),
        f"(lambda cls: lambda **a: {call})({maker})",
        lambda arrays: refusal({"held": cls(**{name: arrays[name] for name in names})}),
        equal="bits" if "pad" in options else "close",
    )


def held_pad(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return _held(rng, fn, program, {"pad": {"n": "pow2"}})


def held_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return _held(rng, fn, program, {"chunk": {"n": _chunk(rng, n)}})


def held_stream(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return None if n == 0 else _held(rng, fn, program, {}, {"n": _chunk(rng, n)})


HELD: dict[str, Option] = {
    "held pad": Option(held_pad, 1.5),
    "held chunk": Option(held_chunk, 1),
    "held stream": Option(held_stream, 0.5),
}
