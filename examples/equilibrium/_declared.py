"""What a model is made of, looked at when it is made: functions, groups of variables, their numbers
and names.
"""

from typing import Any

import numpy as np

from ._fail import ModelError, message
from ._given import count, shown
from ._variables import Layout, Point, members


def check(model: Any) -> None:
    """Look at a model before anything is traced.

    Raises:
        ModelError: A function, a group, a number or a name is not what it should be.
    """
    where = model.name if isinstance(model.name, str) else "model"
    if not (isinstance(model.point, type) and issubclass(model.point, Point)):
        raise ModelError(
            message(
                where,
                f"point is {shown(model.point)}.",
                "It is a subclass of `Point`.",
                "write `class Period(Point):`.",
            )
        )
    if not isinstance(model.name, str) or not isinstance(model.rolled, bool):
        raise ModelError(
            message(
                where,
                f"name is {shown(model.name)} and rolled {shown(model.rolled)}.",
                "The name is text, and `rolled` is True or False.",
                "pass such.",
            )
        )
    count(where, "slots", model.slots, 0)
    for label in ("controls", "states", "shocks", "params"):
        _check_group(f"{where}, {label}", getattr(model, label), zero=label == "shocks")
    names = [
        name for group in (model.controls, model.states, model.shocks) for name in members(group)
    ]
    for name in sorted(
        {name for name in names if names.count(name) > 1 or hasattr(model.point, name)}
    ):
        raise ModelError(
            message(
                where,
                f"{name!r} stands for two things.",
                "Variables and derived quantities share one namespace.",
                "rename one.",
            )
        )
    for name in ("equations", "persistence"):
        if not callable(getattr(model, name)):
            raise ModelError(
                message(
                    where,
                    f"{name} is {shown(getattr(model, name))}.",
                    "It is a function.",
                    "write one; see `Model`.",
                )
            )
    if not model.sizes["u"] + model.sizes["x"]:
        raise ModelError(
            message(
                where,
                "there are neither controls nor states.",
                "They are what a model solves for.",
                "name some.",
            )
        )


def _check_group(where: str, group: Any, *, zero: bool) -> None:
    for name, value in members(group).items():
        if not isinstance(name, str) or value is None or name == "params":
            raise ModelError(
                message(
                    where,
                    f"{shown(name)} is {shown(value)}.",
                    "A variable has a name, which is text but not 'params', and a number.",
                    "rename it, or give it a number.",
                )
            )
    layout = Layout.of(group)
    moved = np.flatnonzero(layout.vector(group, where))
    if zero and moved.size:
        raise ModelError(
            message(
                where,
                f"{layout.names[moved[0]]!r} is not zero.",
                "Shocks are zero in the steady state.",
                "write `mean * exp(z)` in the equations, and 0.0 here.",
            )
        )
