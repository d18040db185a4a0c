"""Arguments by axis size, from the annotations of a function.

Random numbers come from a fixed seed, so that each run has the same. Floating-point numbers lie
between 0 and 1, integers between 0 and 9: both are fit for roots, logarithms and most indices.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._contract.contract import Parameter
from ..._errors import OptionError, name_fix, shortlist
from ..._jax.trees import issubdtype
from ..._program.examples import abstract_values
from ..._signature.hints import AnyHint, ArrayHint, ModuleHint, ScalarHint, StaticHint
from ..._text.json import Data, Record
from .parsing import WHERE
from .target import Target, attribute

_SEED = 0
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MAKE = (
    "write a function in the same file that returns a dict of arguments by name, and give its name:"
    " --arguments make"
)


@dataclass(frozen=True)
class Maker:
    """Factory of the arguments of a call.

    Args:
        target: The function.
        values: Values of `--set`, by parameter.
        make: Function of `--arguments`: returns arguments by name, and takes the sizes that its
            parameters name.
    """

    target: Target
    values: Record
    make: Callable[..., object] | None

    def abstract(self, sizes: Mapping[str, int]) -> inspect.BoundArguments:
        """Return the arguments for axis sizes, with abstract arrays made from annotations.

        Raises:
            OptionError: An argument cannot be made, or an axis has no size.
            ContractError: A size is not possible under these annotations.
        """
        # Values of `--set` override those of `--arguments`.
        given = {**self._make_data(sizes), **self.values}
        core = self.target.core
        # Annotations may name classes that were undefined at decoration, and exist by now.
        if core.contract.unresolved:
            core.resolve()
        self._check(sizes, given)

        # Sizes of other names are for the function of `--arguments` alone.
        names = {*core.axes, *(axis.name for axis in core.options.vmap)}
        made = {
            p.name: _alone(p.hint, sizes)
            for p in core.contract.parameters
            if p.name not in given and not p.has_default
        }
        made = {name: value for name, value in made.items() if value is not None}
        args, kwargs = abstract_values(
            core, (), {**given, **made}, {n: s for n, s in sizes.items() if n in names}, warn=False
        )
        return core.binder.signature.bind(*args, **kwargs)

    def _make_data(self, sizes: Mapping[str, int]) -> Data:
        if self.make is None:
            return {}
        takes = inspect.signature(self.make).parameters
        missing = [
            name
            for name, each in takes.items()
            if name not in sizes and each.default is each.empty and each.kind not in _VARIABLE
        ]
        if missing:
            what = f"the function of --arguments takes {shortlist(missing)}, which has no size."
            raise OptionError(
                WHERE,
                what,
                "It takes sizes by the names of axes, or nothing.",
                f"add --sizes {missing[0]}=8.",
                code="J205",
            )

        made = self.make(**{name: size for name, size in sizes.items() if name in takes})
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            what = f"the function of --arguments returns a {type(made).__name__}."
            raise OptionError(
                WHERE,
                what,
                "It returns arguments by name.",
                'have it `return {"model": model}`.',
                code="J205",
            )
        return dict(made)

    def _check(
        self,
        sizes: Mapping[str, int],
        given: Mapping[str, object],
    ) -> None:
        """Raise an error, with its reason, for unknown names and for arguments without a value."""
        core = self.target.core
        parameters = {parameter.name: parameter for parameter in core.contract.parameters}
        open_ended = any(
            parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        for name in given:
            if name not in parameters and not open_ended:
                what = f"{core.where} has no parameter {name!r}."
                raise OptionError(
                    WHERE,
                    what,
                    f"Its parameters are {', '.join(parameters) or 'none'}.",
                    name_fix(name, parameters),
                    code="J205",
                )
        mapped = {axis.name for axis in core.options.vmap}
        takes = () if self.make is None else inspect.signature(self.make).parameters
        for axis in sizes:
            if axis not in {*core.axes, *mapped, *takes}:
                what = f"{core.where} has no axis {axis!r}."
                axes = ", ".join(sorted({*core.axes, *mapped})) or "none"
                raise OptionError(
                    WHERE,
                    what,
                    f"The axes of its annotations are {axes}.",
                    "correct the name.",
                    code="J205",
                )

        # Arguments without a value so far must follow from their annotation.
        for parameter in parameters.values():
            if (
                parameter.name not in given
                and not parameter.has_default
                and parameter.kind not in _VARIABLE
            ):
                self._check_value(parameter, sizes, given)

    def _check_value(
        self,
        parameter: Parameter,
        sizes: Mapping[str, int],
        given: Mapping[str, object],
    ) -> None:
        hint, name = parameter.hint, parameter.name
        what, fix = "", f"{_MAKE}."
        if isinstance(hint, ArrayHint):
            missing = [axis for axis in (*hint.names, *hint.mentions) if axis not in sizes]
            if any(dim.variadic or dim.kind == "anonymous" for dim in hint.dims):
                what = f"is annotated {hint.text}, which names not all of its axes"
            elif hint.default_dtype() is None and not _is_key(hint):
                what = f"is annotated {hint.text}, which says no dtype"
            elif missing and not given:
                # With given arguments the axis may get its size from one of them.
                what, fix = (
                    f"is annotated {hint.text}, and the axis {missing[0]!r} has no size",
                    f"add --sizes {missing[0]}=8.",
                )
        elif isinstance(hint, AnyHint):
            what, fix = (
                "has no annotation that says its shape",
                f'annotate it, {name}: Float[Array, "n"]; or {_MAKE}.',
            )
        elif isinstance(hint, StaticHint):
            what, fix = (
                f"is static ({hint.text}) and has no default",
                f"add --set {name}=..., a value.",
            )
        elif isinstance(hint, ModuleHint):
            what = f"is a {hint.text}, whose arrays no annotation describes"
        elif not isinstance(hint, ScalarHint):
            what = f"is annotated {hint.text}, of which nothing tells the shapes"
        if what:
            rule = (
                "Arguments are made from annotations with a dtype and named axes, defaults, --set"
                " and --arguments."
            )
            raise OptionError(self.target.core.where, f"{name!r} {what}.", rule, fix, code="J205")


def fill_arguments(bound: inspect.BoundArguments) -> inspect.BoundArguments:
    """Return the same arguments with random NumPy arrays in place of `jax.ShapeDtypeStruct`."""
    rng = np.random.default_rng(_SEED)
    made = copy.copy(bound)
    made.arguments = {name: _numbers(value, rng) for name, value in bound.arguments.items()}
    return made


def maker(
    target: Target,
    values: Mapping[str, object],
    make: str | None,
) -> Maker:
    """Return the factory for a target, with the function of `--arguments` looked up in its file.

    Raises:
        OptionError: `make` is not a function of the file.
    """
    found = None if make is None else attribute(f"--arguments {make}", target.module, make)
    if found is not None and not callable(found):
        raise OptionError(
            WHERE,
            f"--arguments {make} is not a function.",
            "It makes the arguments.",
            f"{_MAKE}.",
            code="J205",
        )
    return Maker(target, values, found)


def _is_key(hint: object) -> bool:
    return (
        isinstance(hint, ArrayHint) and "prng_key" in (hint.dtypes or ()) and hint.rank is not None
    )


def _alone(hint: object, sizes: Mapping[str, int]) -> object:
    """Return a value for hints without axis sizes, Python numbers and keys; None for others."""
    if isinstance(hint, ScalarHint):
        return 0.5 if hint.kind == "float" else 0.5 + 0.5j
    return _keys(hint, sizes) if _is_key(hint) else None


def _keys(hint: Any, sizes: Mapping[str, int]) -> Any:
    shape = tuple(dim.size if dim.kind == "fixed" else sizes.get(dim.name, 1) for dim in hint.dims)
    return jax.random.split(jax.random.key(_SEED), shape) if shape else jax.random.key(_SEED)


def _numbers(value: object, rng: np.random.Generator) -> Any:
    """Return a random array for a `jax.ShapeDtypeStruct`, and any other value unchanged."""
    if not isinstance(value, jax.ShapeDtypeStruct):
        return value
    if value.dtype == np.bool_:
        return rng.integers(0, 2, value.shape, np.int8).astype(np.bool_)
    # `int8` first: `Generator.integers` does not draw the dtypes of `ml_dtypes`, such as int4.
    if issubdtype(value.dtype, np.integer):
        most = min(9, int(jax.numpy.iinfo(value.dtype).max))
        return rng.integers(0, most + 1, value.shape, np.int8).astype(value.dtype)
    # `Generator.random` draws these two; a narrower dtype is rounded from the second.
    wide = np.float64 if value.dtype.itemsize > 4 else np.float32
    real = rng.random(value.shape, wide)
    if issubdtype(value.dtype, np.complexfloating):
        real = real + 1j * rng.random(value.shape, wide)
    return np.asarray(real).astype(value.dtype)
