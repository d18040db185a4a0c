"""Everything that a file declares, gathered statement by statement."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ._expressions import (
    FUNCTIONS,
    Expression,
    Name,
    Steady,
    equation,
    evaluate,
    parse,
    replaced,
    walk,
)
from ._places import Place, fail
from ._statements import COMPUTE, Block, Statement, names

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)(.*)$", re.DOTALL)
_SET = re.compile(r"set_param_value\(\s*['\"](\w+)['\"]\s*,(.*)\)$", re.DOTALL)
_TAGS = re.compile(r"\[(.*?)\]\s*", re.DOTALL)
_TAG = re.compile(r"(\w+)\s*=\s*(['\"])(.*?)\2")
_MEANT = ("mcp", "static", "dynamic", "bind", "relax", "endogenous")  # tags that change a model
# They compute with a model, and are kept for the caller.
COMMANDS = frozenset(
    [
        "steady",
        "check",
        "resid",
        "stoch_simul",
        "simul",
        "perfect_foresight_setup",
        "perfect_foresight_solver",
        "perfect_foresight_with_expectation_errors_setup",
        "extended_path",
        "estimation",
        "identification",
        "forecast",
        "conditional_forecast",
        "plot_conditional_forecast",
        "shock_decomposition",
        "realtime_shock_decomposition",
        "plot_shock_decomposition",
        "initial_condition_decomposition",
        "calib_smoother",
        "method_of_moments",
        "dynare_sensitivity",
        "sensitivity",
        "osr",
        "osr_params",
        "model_info",
        "model_diagnostics",
        "write_latex_dynamic_model",
        "write_latex_static_model",
        "write_latex_original_model",
        "write_latex_parameter_table",
        "write_latex_definitions",
        "write_latex_prior_table",
        "collect_latex_files",
        "rplot",
        "dynatype",
        "dynasave",
        "datatomfile",
        "dynare",
        "options_",
        "oo_",
        "close",
        "clear",
        "clc",
        "clearvars",
        "warning",
        "save_params_and_steady_state",
        "evaluate_planner_objective",
        "generate_irfs",
    ]
)


@dataclass
class Declared:
    """What has been read so far.

    Args:
        values: Numbers of parameters, and of other names to the left of an equals sign.
        start: Where the search for a steady state begins.
        equations: By name, what is zero.
        locals: Expressions that stand for names in the equations.
        steady: Assignments of `steady_state_model`.
        variances: Of shocks and measurement errors by their two names.
        correlations: Likewise.
        commands: What is kept and not read, with lines.
        linear: Where the file says that the model is linear.
    """

    variables: dict[str, Place] = field(default_factory=dict[str, Place])
    shocks: dict[str, Place] = field(default_factory=dict[str, Place])
    parameters: dict[str, Place] = field(default_factory=dict[str, Place])
    predetermined: set[str] = field(default_factory=set[str])
    observed: list[str] = field(default_factory=list[str])
    values: dict[str, float] = field(default_factory=dict[str, float])
    start: dict[str, float] = field(default_factory=dict[str, float])
    equations: dict[str, Expression] = field(default_factory=dict[str, Expression])
    locals: dict[str, Expression] = field(default_factory=dict[str, Expression])
    steady: list[tuple[str, Expression]] = field(default_factory=list[tuple[str, Expression]])
    variances: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    correlations: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    commands: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    linear: Place | None = None

    def take(self, given: Statement | Block) -> None:
        """One statement or block of a file."""
        if isinstance(given, Block):
            kinds: dict[str, Callable[[Block], None]] = {
                "model": self._model,
                "initval": self._initval,
                "steady_state_model": self._steady,
                "shocks": self._shocks,
            }
            if given.head.word in COMPUTE:
                self.commands.append((given.head.place.line, given.head.text))
            else:
                kinds[given.head.word](given)
            return
        groups = {"var": self.variables, "varexo": self.shocks, "parameters": self.parameters}
        assigned = _ASSIGNED.match(given.text) or _SET.match(given.text)
        if given.word in groups and not given.rest.startswith("="):
            for name in names(given):
                self._new(name, given.place)
                groups[given.word][name] = given.place
        elif given.word == "predetermined_variables":
            self.predetermined |= {self._known(name, given.place) for name in names(given)}
        elif given.word == "varobs":
            self.observed += [self._known(name, given.place) for name in names(given)]
        elif assigned:
            self.values[assigned[1]] = self.number(assigned[2], given.place)
        elif given.word in COMMANDS:
            self.commands.append((given.place.line, given.text))
        else:
            raise fail(
                given.place,
                f"{given.text.splitlines()[0]!r} is not read.",
                "Read are var, varexo, parameters, predetermined_variables, varobs, assignments,"
                " model, steady_state_model, initval and shocks; what computes with a model is"
                " kept in `commands`.",
                "delete the line, and do in Python what it does.",
            )

    def _new(self, name: str, place: Place) -> None:
        known = self.variables | self.shocks | self.parameters
        if name in known or name in FUNCTIONS:
            where = f", in {known[name]}" if name in known else " as a function"
            raise fail(
                place,
                f"{name!r} is there already{where}.",
                "Variables, shocks and parameters share one namespace.",
                "rename one.",
            )

    def _known(self, name: str, place: Place) -> str:
        if name not in self.variables:
            raise fail(
                place,
                f"{name!r} is not a variable.",
                f"Variables are {', '.join(self.variables)}.",
                "declare it with `var` before.",
            )
        return name

    def number(self, text: str, place: Place) -> float:
        """The value of an expression of numbers that are known by now."""

        def read(name: Name | Steady) -> np.float64:
            found = (self.start | self.values).get(name.name)
            if found is None or isinstance(name, Steady) or name.lead:
                raise fail(
                    place,
                    f"{name.name!r} has no value here.",
                    "Numbers are read from top to bottom.",
                    "give it a number before this line.",
                )
            return np.float64(found)

        with np.errstate(all="ignore"):
            found = float(evaluate(parse(text, place), read, traced=False))
        if not np.isfinite(found):
            raise fail(
                place,
                f"{text.strip()!r} is {found}.",
                "Parameters and starting points are finite numbers.",
                "look for a division by zero, or a root or logarithm of what is negative.",
            )
        return found

    def _assignments(self, block: Block) -> Iterator[tuple[Place, str, str]]:
        for each in block.body:
            found = _ASSIGNED.match(each.text)
            if found is None:
                raise fail(
                    each.place,
                    f"{each.text.splitlines()[0]!r} is not an assignment.",
                    f"Lines of `{block.head.word}` give names their values.",
                    "write `name = expression;`.",
                )
            yield each.place, found[1], found[2]

    def _initval(self, block: Block) -> None:
        for place, name, text in self._assignments(block):
            found = self.number(text, place)
            if name in self.shocks and found:
                raise fail(
                    place,
                    f"shock {name!r} is {found:g} in the steady state.",
                    "Shocks are zero there.",
                    f"write `(mean + {name})` in the equations, with a parameter for the mean.",
                )
            if name not in self.shocks:
                self.start[self._known(name, place)] = found

    def _steady(self, block: Block) -> None:
        for place, name, text in self._assignments(block):
            if name in self.shocks:
                raise fail(
                    place,
                    f"shock {name!r} is assigned.",
                    "Shocks are zero in the steady state.",
                    f"write `(mean + {name})` in the equations, with a parameter for the mean.",
                )
            self.steady.append((name, parse(text, place)))

    def _model(self, block: Block) -> None:
        if re.search(r"\blinear\b", block.head.rest):
            self.linear = block.head.place
        for each in block.body:
            tags = _TAGS.match(each.text)
            told = {key: text for key, _, text in _TAG.findall(tags[1])} if tags else {}
            text = each.text[tags.end() :] if tags else each.text
            place = each.place.below(each.text[: len(each.text) - len(text)].count("\n"))
            bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", tags[1]) if tags else ""
            for key in _MEANT:
                if re.search(rf"\b{key}\b", bare):
                    raise fail(
                        place,
                        f"the tag {key!r} is not read.",
                        "All equations hold at all dates.",
                        "delete the equation or the tag, whichever the model means.",
                    )
            if text.startswith("#"):
                self._local(text[1:], place)
                continue
            name = told.get("name", f"line {place.line}")
            count = sum(key == name or key.startswith(f"{name} (") for key in self.equations)
            name = f"{name} ({count + 1})" if count else name
            self.equations[name] = self._placed(equation(text, place))

    def _local(self, text: str, place: Place) -> None:
        found = _ASSIGNED.match(text.strip())
        if found is None:
            raise fail(
                place,
                f"'#{text}' is not an assignment.",
                "A local name stands for an expression.",
                "write `#name = expression;`.",
            )
        self._new(found[1], place)
        self.locals[found[1]] = self._placed(parse(found[2], place))

    def _placed(self, given: Expression) -> Expression:
        """An expression with the meaning of its names."""

        def meant(name: Name) -> Expression:
            if name.name in self.locals and not name.lead:
                return self.locals[name.name]
            if name.name in self.predetermined:
                return Name(name.name, name.lead - 1, name.place)
            if name.name in (self.variables | self.shocks):
                return name
            if name.name in self.parameters and not name.lead:
                return name
            known = name.name in self.locals or name.name in self.parameters
            raise fail(
                name.place,
                f"{name.name!r} has a lead or a lag."
                if known
                else f"{name.name!r} is not declared.",
                "Parameters and local names have no date."
                if known
                else "Names are variables, shocks, parameters, or local names above.",
                "correct the name, or declare it.",
            )

        for each in walk(given):
            if isinstance(each, Steady):
                self._known(each.name, each.place)
        return replaced(given, meant)

    def _shocks(self, block: Block) -> None:
        if "overwrite" in block.head.rest:
            self.variances.clear()
            self.correlations.clear()
        last: tuple[str, ...] = ()
        for each in block.body:
            listed, _, text = each.rest.partition("=")
            pair = tuple(listed.replace(",", " ").split())
            known = self.shocks | self.variables
            unknown = [name for name in pair if name not in known]
            if each.word in ("var", "corr") and unknown:
                raise fail(
                    each.place,
                    f"{unknown[0]!r} is not declared.",
                    f"Shocks are {', '.join(self.shocks)}.",
                    "declare it with `varexo`.",
                )
            if len(pair) == 2 and not set(pair) <= set(self.shocks):
                raise fail(
                    each.place,
                    f"{each.text!r} is not read.",
                    "Measurement errors are independent: each has a variance.",
                    "write the error as a shock of the model.",
                )
            if each.word == "var" and len(pair) in (1, 2):
                last = pair
                if text:
                    self.variances[pair[0], pair[-1]] = self.number(text, each.place)
            elif each.word == "stderr" and len(last) == 1:
                self.variances[last[0], last[0]] = self.number(each.rest, each.place) ** 2
            elif each.word == "corr" and len(pair) == 2 and text:
                self.correlations[pair[0], pair[1]] = self.number(text, each.place)
            else:
                raise fail(
                    each.place,
                    f"{each.text.splitlines()[0]!r} is not read.",
                    "A shock has a variance, `var e = 0.01^2;` or `var e; stderr 0.01;`, two have a"
                    " covariance or `corr e, u = 0.5;`.",
                    "give values of announced shocks to the function that computes the path.",
                )
