"""From a file to a `Model`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._fail import ModelError, message
from .._given import shown
from .._model import Model
from ._declared import Declared
from ._expressions import (
    Expression,
    Name,
    Steady,
    evaluate,
    walk,
    written,
)
from ._macros import defined, expand
from ._places import Place, fail, text_of
from ._statements import blocks, statements
from ._timing import Timing, timed

Values = dict[str, Any]


@dataclass(frozen=True, eq=False)
class ModFile:
    """A model as a file says it.

    Its variables are controls under their names. What the equations read of the past are states
    under the names that they have there, `k(-1)`. Innovations are shocks without persistence.

    Args:
        model: The model, as if it were written in Python.
        params: Parameters by name, as they are at the end of the file.
        covariance: Of the shocks, in the order of the model, which is that of their names.
        errors: Variances of measurement errors by variable.
        observed: What `varobs` names.
        steady: From parameters to the controls and states of `steady_state_model`, on the host or
            traced, as `at` and `solution(at=)` take them; None where the file has no such block.
        commands: Lines that say what to compute, with their numbers; none of them is run.
    """

    model: Model
    params: dict[str, float]
    covariance: np.ndarray
    errors: dict[str, float]
    observed: tuple[str, ...]
    steady: Callable[[Values], tuple[Values, Values]] | None
    commands: tuple[tuple[int, str], ...]

    def __repr__(self) -> str:
        rows = (f"  line {line}, not run: {text}" for line, text in self.commands)
        return "\n".join([repr(self.model), *rows])


def read_mod(path: str | Path, defines: dict[str, Any] | None = None) -> ModFile:
    """Read a model from a `.mod` file, the language of Dynare.

    Args:
        path: The file.
        defines: Macro variables by name, as of the command line.

    Raises:
        ModelError: There is something in it that is not read. The message has its line.
    """
    if not isinstance(path, (str, Path)) or not Path(path).is_file():
        raise ModelError(
            message(
                "read_mod",
                f"there is no file {shown(path)}.",
                "It is the path of a file.",
                "correct it, or pass a text to `parse_mod`.",
            )
        )
    return parse_mod(text_of(Path(path)), Path(path).name, defines, Path(path).parent)


def parse_mod(
    text: str,
    name: str = "model.mod",
    defines: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> ModFile:
    """Read a model from a text, as `read_mod` does.

    Args:
        text: The text.
        name: What messages call it.
        defines: Macro variables by name.
        folder: Where `@#include` looks.
    """
    declared = Declared()
    for each in blocks(statements(expand(text, name, folder, defined(defines)))):
        declared.take(each)
    _check(declared, name)
    steady = _Rest(declared)
    equations, timing = timed(declared.equations.values(), declared.variables | declared.shocks)
    params = {each: declared.values[each] for each in declared.parameters if each not in steady.own}
    start = steady.start(params)
    model = Model(
        _Equations(dict(zip(declared.equations, equations, strict=True)), timing, steady),
        **_groups(declared, timing, start),
        persistence=lambda _: dict.fromkeys(declared.shocks, 0.0),
        params=params,
        name=name,
    )
    if declared.linear is not None and model.graph is not None and not model.linear:
        raise fail(
            declared.linear,
            "the model is not linear.",
            "The file says that it is.",
            "write `model;`, or look for a product of variables.",
        )
    return ModFile(
        model,
        params,
        _covariance(declared),
        {
            name: found
            for (name, _), found in declared.variances.items()
            if name not in declared.shocks
        },
        tuple(declared.observed),
        steady.groups(timing, model) if declared.steady else None,
        tuple(declared.commands),
    )


def _check(declared: Declared, name: str) -> None:
    """As many equations as variables, and a number for each parameter."""
    where = Place(name, 1)
    if len(declared.equations) != len(declared.variables):
        raise fail(
            where,
            f"there are {len(declared.equations)} equations and {len(declared.variables)}"
            " variables.",
            "Each variable needs one equation.",
            "add or drop equations of the block `model`, or names of `var`.",
        )
    given = {target for target, _ in declared.steady} | set(declared.values)
    for each, place in declared.parameters.items():
        if each not in given:
            raise fail(
                place,
                f"parameter {each!r} has no value.",
                "Each has one.",
                f"write `{each} = ...;`.",
            )
    read = {
        each.name
        for equation in declared.equations.values()
        for each in walk(equation)
        if isinstance(each, Name)
    }
    for each, place in declared.variables.items():
        if each not in read:
            raise fail(
                place,
                f"variable {each!r} is in none of the equations.",
                "Each variable needs one equation.",
                "drop it, or write its equation.",
            )


class _Rest:
    """The steady state as `steady_state_model` has it: assignments from top to bottom.

    Parameters that it assigns are not parameters of the model: they follow from the others.
    """

    def __init__(self, declared: Declared):
        self.declared = declared
        self.assigned = [target for target, _ in declared.steady]
        self.own = [name for name in self.assigned if name in declared.parameters]
        known = {*declared.parameters} - {*self.own} | {*declared.shocks}
        for target, given in declared.steady:
            for each in walk(given):
                if isinstance(each, (Name, Steady)) and (
                    each.name not in known or isinstance(each, Steady) or each.lead
                ):
                    raise fail(
                        each.place,
                        f"{written(each)!r} is not known here.",
                        "A line of `steady_state_model` reads parameters, and what lines above it"
                        " assign.",
                        "write the line that assigns it further up.",
                    )
            known.add(target)
        for name, place in declared.variables.items() if declared.steady else ():
            if name not in known:
                raise fail(
                    place,
                    f"`steady_state_model` does not assign {name!r}.",
                    "It assigns each variable.",
                    "add a line for it, or delete the block: then the steady state is searched.",
                )

    def values(self, params: Values, *, traced: bool) -> Values:
        """Parameters, variables and all else that is assigned."""
        found = {**dict.fromkeys(self.declared.shocks, np.float64(0.0)), **params}
        for target, given in self.declared.steady:
            found[target] = evaluate(given, lambda name: found[name.name], traced=traced)
        return found

    def on_host(self, params: Values) -> Values:
        """The same in float64, where what is not a number is one that is not finite."""
        numbers = {name: np.asarray(each, np.float64)[()] for name, each in params.items()}
        with np.errstate(all="ignore"):
            return self.values(numbers, traced=False)

    def start(self, params: Values) -> Values:
        """Where a search begins."""
        found = self.on_host(params)
        return {**dict.fromkeys(self.declared.variables, 0.0), **self.declared.start, **found}

    def groups(self, timing: Timing, model: Model) -> Callable[[Values], tuple[Values, Values]]:
        """Controls and states from parameters."""
        layout, where = model.parameters, f"{model.name}, steady_state_model, parameters"

        def steady(params: Values) -> tuple[Values, Values]:
            traced = any(isinstance(each, jax.core.Tracer) for each in layout.leaves(params, where))
            found = self.values(params, traced=True) if traced else self.on_host(params)
            with np.errstate(all="ignore"):
                return _at_rest(self.declared, timing, found, traced=traced)

        return steady


def _at_rest(
    declared: Declared, timing: Timing, found: Values, *, traced: bool
) -> tuple[Values, Values]:
    """Controls and states where nothing moves."""

    def read(name: Name | Steady) -> Any:
        return found[name.name]

    for name, given in timing.controls.items():
        found[name] = evaluate(given, read, traced=traced)
    controls = {name: found[name] for name in (*declared.variables, *timing.controls)}
    return controls, {name: found[last.name] for name, last in timing.states.items()}


def _groups(declared: Declared, timing: Timing, start: Values) -> Values:
    """Controls, states and shocks with where a search begins; what is not finite there is zero."""
    shocks = dict.fromkeys(declared.shocks, 0.0)
    with np.errstate(all="ignore"):
        groups = _at_rest(declared, timing, {**start, **shocks}, traced=False)
    controls, states = (
        {name: float(each) if np.isfinite(each) else 0.0 for name, each in group.items()}
        for group in groups
    )
    return {"controls": controls, "states": states, "shocks": shocks}


@dataclass(frozen=True, eq=False)
class _Equations:
    """What `Model` takes: residuals from parameters, today and tomorrow."""

    given: dict[str, Expression]
    timing: Timing
    steady: _Rest

    def __call__(self, params: Values, now: Any, ahead: Any) -> Values:
        """Equations of the file, of auxiliary controls and of states; traced."""
        needed = self.steady.own or any(
            isinstance(each, Steady) for given in self.given.values() for each in walk(given)
        )
        known = self.steady.values(params, traced=True) if needed else dict(params)
        memo: dict[int, Any] = {}

        def read(name: Name | Steady) -> Any:
            if isinstance(name, Steady):
                return self._at_rest(name, known)
            if name.name not in self.timing.moving:
                return known[name.name]
            if name.lead < 0:
                return getattr(now, written(name))
            return getattr(ahead if name.lead else now, name.name)

        def value(given: Expression) -> Any:
            return evaluate(given, read, memo, traced=True)

        found = {name: value(given) for name, given in self.given.items()}
        for name, given in self.timing.controls.items():
            found[name] = getattr(now, name) - value(given)
        for name, last in self.timing.states.items():
            found[name] = getattr(ahead, name) - value(last)
        return found

    def _at_rest(self, name: Steady, known: Values) -> Any:
        if not self.steady.assigned:
            raise fail(
                name.place,
                f"`steady_state({name.name})` needs a block `steady_state_model`.",
                "It stands for what that block assigns.",
                "add the block, or write a parameter instead.",
            )
        return known[name.name]


def _covariance(declared: Declared) -> np.ndarray:
    """Of the shocks in the order of their names."""
    shocks = sorted(declared.shocks)
    found = np.zeros((len(shocks), len(shocks)))
    for pair, value in declared.variances.items():
        if set(pair) <= set(shocks):
            i, j = (shocks.index(name) for name in pair)
            found[i, j] = found[j, i] = value
    for pair, value in declared.correlations.items():
        i, j = (shocks.index(name) for name in pair)
        found[i, j] = found[j, i] = value * np.sqrt(found[i, i] * found[j, j])
    return found
