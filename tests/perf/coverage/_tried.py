"""Try one way on one axis of a model, for the value or the gradient, and say what came of it,
beside plain JAX at exact size.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np

import jitney

from ._model import Model

CHUNK = 4
TRIED = (
    ("pad", "value"),
    ("pad", "gradient"),
    ("chunk", "value"),
    ("chunk", "gradient"),
    ("accumulate", "gradient"),
    ("stream", "value"),
    ("stream", "gradient"),
)


@dataclass(frozen=True)
class Cell:
    """What came of one way.

    Args:
        model: Its name.
        group: Of the model.
        axis: That was padded or cut.
        way: "pad", "chunk", "accumulate" or "stream".
        of: "value" or "gradient" (which is the value beside the gradient).
        outcome: "exact", "refused", "WRONG" or "raw error".
        why: The reason, as the user reads it, or how far the numbers are off.
        never: Why mathematics does not allow it; None where it does.
        bits: Of the numbers, 32 or 64.
    """

    model: str
    group: str
    axis: str
    way: str
    of: str
    outcome: str
    why: str = ""
    never: str | None = None
    bits: int = 32

    @property
    def is_ours(self) -> bool:
        """Whether it is refused though it can be done."""
        return self.outcome == "refused" and self.never is None

    def __str__(self) -> str:
        return self.outcome if not self.why else f"{self.outcome}: {self.why}"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def cells(model: Model, *, is_wide: bool = False) -> Iterator[Cell]:
    """All ways along all axes of a model; with numbers of 64 bits, under `jax_enable_x64`, if
    `is_wide`.
    """
    arguments = model.data(model.sizes)
    if is_wide:
        arguments = jax.tree.map(_widened, arguments)
        model = replace(model, tolerance=model.wide_tolerance or model.tolerance)
    try:
        exact = _exact(model, arguments)
    except (TypeError, ValueError) as error:
        if not is_wide:
            raise
        # A model that writes float32 itself; plain JAX refuses it too.
        print(f"{model.name}: float32 alone: {str(error).splitlines()[0]}", file=sys.stderr)
        return
    for axis in model.sizes:
        for way, of in TRIED:
            if way not in model.ways or of not in model.of:
                continue
            outcome, why = _outcome(model, axis, way, of, arguments, exact[of])
            yield Cell(
                model.name,
                model.group,
                axis,
                way,
                of,
                outcome,
                why,
                model.impossible(axis, way, of),
                64 if is_wide else 32,
            )


_WIDER = {"float32": "float64", "int32": "int64", "complex64": "complex128"}


def _widened(leaf: Any) -> Any:
    name = str(getattr(leaf, "dtype", ""))
    return leaf.astype(_WIDER[name]) if name in _WIDER else leaf


def _exact(model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What plain JAX makes of it."""
    rest = {name: value for name, value in arguments.items() if name != model.wrt}

    def loss(varied: Any, rest: Any) -> Any:
        return model.loss(**{model.wrt: varied}, **rest)

    ways = {"value": loss, "gradient": eqx.filter_value_and_grad(loss, has_aux=model.has_aux)}
    return {of: eqx.filter_jit(ways[of])(arguments[model.wrt], rest) for of in model.of}


def _outcome(
    model: Model, axis: str, way: str, of: str, arguments: Mapping[str, Any], exact: Any
) -> tuple[str, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got, unfilled = _run(model, axis, way, of, arguments)
        except jitney.JitneyError as error:
            return "refused", _plain(str(error))
        except Exception as error:  # noqa: BLE001 # whatever a user would see
            return "raw error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    off = difference(got, exact, model.tolerance)
    if off:
        return "WRONG", off
    told = unfilled or next(
        (str(each.message) for each in caught if issubclass(each.category, jitney.JitneyWarning)),
        None,
    )
    return ("refused", _plain(told)) if told else ("exact", "")


def _run(
    model: Model, axis: str, way: str, of: str, arguments: Mapping[str, Any]
) -> tuple[Any, str | None]:
    """The result, and why it was not padded, by the plan: a second warning of the same line is not
    given.
    """
    extra = {"has_aux": True} if model.has_aux else {}
    if way == "accumulate":
        return (
            jitney.accumulate(model.loss, axis=axis, microbatch=CHUNK, wrt=model.wrt, **extra)(
                **arguments
            ),
            None,
        )
    options: dict[str, Any] = {
        "pad": {"pad": {axis: "pow2"}},
        "chunk": {"chunk": {axis: CHUNK}},
    }.get(way, {})
    program: Any = jitney.optimize(**options)(model.loss)
    if of == "gradient":
        program = program.value_and_grad.program(wrt=model.wrt, **extra)
    if way == "stream":
        return jitney.stream(program, **arguments, chunk={axis: CHUNK}, progress=False).result, None
    got = program(**arguments)
    return got, _unfilled(program.plan(**arguments)) if way == "pad" else None


def _unfilled(plan: jitney.types.Report) -> str | None:
    for decision in plan.to_dict()["decisions"]:
        if decision["name"] == "fill":
            return None if decision["taken"] else decision["why"]
    return "not padded"


def _plain(text: str) -> str:
    """The first line of a message, without where the function is."""
    line = text.splitlines()[0]
    _, _, rest = line.partition(": ")
    return rest or line


def difference(got: Any, exact: Any, tolerance: float) -> str:
    """How far numbers are off, "" if they are equal up to rounding: of the largest of an array, or
    of a hundredth of that of all.
    """
    ours, theirs = (jax.tree.leaves(eqx.filter(tree, eqx.is_array_like)) for tree in (got, exact))
    if len(ours) != len(theirs):
        return f"{len(ours)} arrays instead of {len(theirs)}"
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(ours, theirs, strict=True)
    ]
    largest = max((float(np.max(np.abs(b))) for _, b in pairs if b.size), default=0.0)
    for a, b in pairs:
        if a.shape != b.shape:
            return f"shape {a.shape} instead of {b.shape}"
        if b.size and not np.allclose(
            a,
            b,
            rtol=0,
            atol=tolerance * max(float(np.max(np.abs(b))), largest / 100),
            equal_nan=True,
        ):
            return (
                f"off by {np.max(np.abs(a - b)):.2g} where numbers are up to"
                f" {np.max(np.abs(b)):.2g}"
            )
    return ""
