"""Targets as data, and whether equations and targets can determine a steady state at all."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from ._fail import ModelError, message
from ._given import number, shown
from ._independence import unmatched
from ._model import Model

TARGETS = "Targets are a dict from the parameter that is freed to a variable and its value."


class Calibration(NamedTuple):
    """Targets as data: `pick @ (controls, states) = value` where `active` is 1, and the columns of
    `free` say which parameter gives way.
    """

    free: Float[Array, "p slots"]
    pick: Float[Array, "slots v"]
    value: Float[Array, "slots"]
    active: Float[Array, "slots"]


def unknowns(model: Model) -> tuple[str, ...]:
    """The names of controls and states."""
    return *model.layouts[0].names, *model.layouts[1].names


def calibration(model: Model, targets: Mapping[str, tuple[str, float]]) -> Calibration:
    """Targets as arrays.

    Args:
        model: The model.
        targets: From the name of a parameter that is freed to the variable that has a target and
            its value: `{"beta": ("logK[0]", 0.4)}`.

    Raises:
        ModelError: A name is unknown, or there are more targets than `model.slots`.
    """
    where = f"{model.name}, steady state"
    if not isinstance(targets, Mapping):
        raise ModelError(
            message(
                where,
                f"targets are {shown(targets)}.",
                TARGETS,
                'write targets={"beta": ("logK[0]", 0.4)}.',
            )
        )
    if len(targets) > model.slots:
        raise ModelError(
            message(
                where,
                f"there are {len(targets)} targets and {model.slots} slots.",
                "Each target frees one parameter, and the program has room for `slots` of them.",
                f"make the model with slots={len(targets)}.",
            )
        )
    known = unknowns(model)
    found = Calibration(
        *(
            np.zeros(shape)
            for shape in ((model.parameters.size, model.slots), (model.slots, len(known)))
        ),
        *np.zeros((2, model.slots)),
    )
    for slot, (parameter, target) in enumerate(targets.items()):
        if not isinstance(target, (tuple, list)) or len(target) != 2:
            raise ModelError(
                message(
                    where,
                    f"the target for {shown(parameter)} is {shown(target)}.",
                    TARGETS,
                    'write ("logK[0]", 0.4).',
                )
            )
        variable, value = target
        found.free[model.parameters.index(f"{model.name}, parameters", parameter), slot] = 1.0
        if variable not in known:
            raise ModelError(
                message(
                    where,
                    f"the target {variable!r} is no variable.",
                    f"Targets are of {', '.join(known)}.",
                    "correct the name.",
                )
            )
        found.pick[slot, known.index(variable)] = 1.0
        found.value[slot], found.active[slot] = (
            number(where, f"the target of {variable}", value),
            1.0,
        )
    determined(model, tuple((parameter, variable) for parameter, (variable, _) in targets.items()))
    return found


@lru_cache(maxsize=256)
def determined(model: Model, targets: tuple[tuple[str, str], ...]) -> None:
    """See from the places of derivatives whether equations and targets can determine controls,
    states and what is freed.

    Raises:
        ModelError: They cannot, whatever the numbers; the message names the equations and
            variables.
    """
    local, known = model.local, unknowns(model)
    if local.zero is None:  # dense derivatives say nothing of their places
        return
    by = {name: index != local.zero for name, index in local.index.items()}
    freed = [model.parameters.names.index(parameter) for parameter, _ in targets]
    top = np.hstack([by["u"] | by["u_next"], by["x"] | by["x_next"], by["theta"][:, freed]])
    own = np.zeros((len(targets), top.shape[1]), bool)
    own[range(len(targets)), [known.index(variable) for _, variable in targets]] = True
    rows = (
        *model.equation_names,
        *(f"target of {variable} for {parameter}" for parameter, variable in targets),
    )
    who = unmatched(np.vstack([top, own]), rows, (*known, *(parameter for parameter, _ in targets)))
    if who is not None:
        raise ModelError(
            message(
                f"{model.name}, steady state",
                f"{who}.",
                "Each unknown, what a target frees included, needs an equation or target of its own"
                " that contains it.",
                "look for a variable or parameter that an equation should read, an equation that is"
                " written twice, or two targets of one variable.",
            )
        )
