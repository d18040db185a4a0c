"""Derivatives of a program, each built when it is requested: `f.grad`, `f.jacobian` and their like,
and `@lazy_derivatives`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, overload

import jax
import numpy as np

from .._body.function import FunctionInfo
from .._diagnosis.counters import Stats, total
from .._errors import DerivativeError, OptionError, Where
from .._jax.trees import Tracer, tree_flatten
from .._owners import public, shorten
from .._program.entry import Specialization
from .._public import CompletedType, completed_names, public_in
from .._report.plan_report import Report
from .._signature.binding import around_method
from .._signature.options import AUTO, Options, Wrt, fail
from .._sparsity import Mode
from .._stages.derivatives.arguments import COTANGENT, TANGENT, unknown_name
from .._stages.derivatives.derive import Derived, What, with_directions
from .bound import Defaults
from .tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from .program import AnyProgram, Program

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
G = TypeVar("G", covariant=True)


@public_in("jitney.types")
class Derivative(Tools[G], Generic[P, G], metaclass=CompletedType):
    """A derivative of a program. Nothing is traced before it is called.

    It takes the function's own arguments, and by keyword `wrt`: the name of an argument, for the
    derivative with respect to it, or several names, for a dict by name. The default is the `wrt` of
    `@lazy_derivatives`, else all arguments that hold floating-point arrays. `jvp` and `hvp` take
    `tangents`, a direction of the one argument or a dict by name; `vjp` takes `cotangent`, a
    direction of the result. `grad` and `value_and_grad` take `has_aux=True` for a function that
    returns `(number, aux)`, as `jax.grad` does.
    """

    _inside = ("abstract",)

    def __init__(self, program: AnyProgram, what: What):
        self._program = program
        self.what: What = what
        # The program of calls without `wrt`, `has_aux` and a direction.
        self._usual = program.usual.get(what)

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> G: ...
    @overload
    def __call__(self, /, *args: object, wrt: Wrt, **kwargs: Any) -> G: ...
    @overload
    def __call__(
        self,
        /,
        *args: object,
        has_aux: bool,
        wrt: Wrt = None,
        **kwargs: object,
    ) -> Any: ...
    def __call__(
        self,
        /,
        *args: object,
        wrt: Wrt = None,
        has_aux: bool = False,
        **kwargs: object,
    ) -> object:
        if self._usual is not None and wrt is None and has_aux is False:
            return self._usual(*args, **kwargs)
        try:
            made = self._of_call(kwargs, wrt, aux=has_aux)
            if self._program.defaults.sparse:
                return self._by_positions(
                    made, lambda program: program(*args, **kwargs), args, kwargs
                )
            if wrt is None and has_aux is False and self.what not in ("vjp", "jvp", "hvp"):
                self._usual = self._program.usual[self.what] = made
            return made(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    def of_call(self, kwargs: dict[str, Any]) -> AnyProgram:
        """Return the program of a call. What is the derivative's own among its keywords becomes
        arguments of the program.
        """
        wrt = kwargs.pop("wrt", None)
        return self._of_call(kwargs, wrt, aux=kwargs.pop("has_aux", False))

    def _of_call(
        self,
        kwargs: dict[str, object],
        wrt: Wrt,
        *,
        aux: bool,
    ) -> AnyProgram:
        """Return the program of a call. Directions become arguments of it."""
        names, single = self._names(wrt)
        if self.what == "vjp":
            kwargs[COTANGENT] = self._direction(kwargs, "cotangent", "a direction of the result")
        elif self.what in ("jvp", "hvp"):
            given = self._direction(
                kwargs, "tangents", "a direction of the one argument, or a dict by name"
            )
            tangents = {names[0]: given} if single and names else self._by_name(given, names)
            names = tuple(tangents)
            kwargs.update((TANGENT + name, tangent) for name, tangent in tangents.items())
        return self._program_for(names, single, aux=aux)

    def ahead_of_time(
        self,
        kwargs: dict[str, object],
        wrt: Wrt,
        *,
        aux: bool,
    ) -> AnyProgram:
        """Return the program of a call with these keywords. `plan` and `compile` also take a
        direction by the name of its parameter, `tangent_of_x`.
        """
        if self.what in ("jvp", "hvp") and "tangents" in kwargs:
            return self._of_call(kwargs, wrt, aux=aux)
        return self.program(wrt=wrt, has_aux=aux)

    @property
    def function(self) -> AnyProgram:
        """The program that this is a derivative of."""
        return self._program

    @property
    def stats(self) -> Stats:
        """Statistics of its programs so far, with respect to any arguments."""
        programs = self._program.derivatives(self.what)
        return total([program.core.counters for program in programs])

    def program(
        self,
        *,
        wrt: Wrt = None,
        has_aux: bool = False,
    ) -> AnyProgram:
        """Return the program of this derivative, for `plan`, `compile` and `stats`. Its directions
        are arguments `tangent_of_x` and `cotangent`.
        """
        names, single = self._names(wrt)
        return self._program_for(names, single, aux=has_aux)

    @public
    def plan(
        self,
        /,
        *args: object,
        wrt: Wrt = None,
        has_aux: bool = False,
        sizes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Report:
        """Return every decision about this derivative; see `Program.plan`."""
        made = self.ahead_of_time(kwargs, wrt, aux=has_aux)
        if sizes is not None:
            return made.plan(*args, sizes=sizes, **kwargs)
        return self._by_positions(
            made,
            lambda program: program.plan(*args, **kwargs),
            args,
            kwargs,
        )

    @public
    def compile(
        self,
        /,
        *args: object,
        wrt: Wrt = None,
        has_aux: bool = False,
        sizes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Derivative[P, G]:
        """Compile ahead of time; see `Program.compile`."""
        made = self.ahead_of_time(kwargs, wrt, aux=has_aux)
        if sizes is not None:
            made.compile(*args, sizes=sizes, **kwargs)
        else:
            self._by_positions(made, lambda program: program.compile(*args, **kwargs), args, kwargs)
        return self

    @public
    def export(
        self,
        file: str | Path,
        /,
        *args: object,
        wrt: Wrt = None,
        has_aux: bool = False,
        sizes: Mapping[str, object] | None = None,
        vjp_order: int = 0,
        platforms: Sequence[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Write this derivative to a file; see `Program.export`. Directions are arguments
        `tangent_of_x` and `cotangent`.
        """
        self.program(wrt=wrt, has_aux=has_aux).export(
            file, *args, sizes=sizes, vjp_order=vjp_order, platforms=platforms, **kwargs
        )

    def abstract(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        sizes: Mapping[str, int] | None,
        *,
        warn: bool = True,
    ) -> tuple[Specialization, tuple[Any, ...]]:
        """Return the entry of a call, and its arrays or abstract values; see `Program.abstract`."""
        return self.program().abstract(args, kwargs, sizes, warn=warn)

    def __repr__(self) -> str:
        return f"<{self.what} of {self._program!r}>"

    def __dir__(self) -> list[str]:
        return completed_names(self)

    def _direction(
        self,
        kwargs: dict[str, object],
        name: str,
        what: str,
    ) -> object:
        if name not in kwargs:
            raise DerivativeError(
                self._where,
                f"missing {name}=..., {what}.",
                "A derivative along a direction takes that direction.",
                f"pass {name}=... by name.",
                code="J243",
            )
        return kwargs.pop(name)

    def _by_name(
        self,
        given: object,
        names: tuple[str, ...] | None,
    ) -> dict[str, object]:
        if type(given) is not dict or not given or (names is not None and set(given) != set(names)):
            listed = "those that vary" if names is None else ", ".join(map(repr, names))
            raise OptionError(
                self._where,
                "the tangents are not given by name.",
                f"They are a dict by argument name, of {listed}.",
                'write tangents={"x": ...}, or name the one argument with wrt="x".',
                code="J207",
            )
        self._check(tuple(given))
        return given

    def _names(self, wrt: Wrt) -> tuple[tuple[str, ...] | None, bool]:
        defaults = self._program.defaults
        if wrt is None:
            return defaults.wrt, defaults.single
        names, single = argument_names(self._where, "wrt", wrt)
        self._check(names)
        return names, single

    def _check(self, names: tuple[str, ...]) -> None:
        check_names(self._where, names, self._program.core)

    @property
    def _where(self) -> Where:
        where: Where = self._program.core.where
        return replace(where, name=f"{where.name}.{self.what}")

    def _program_for(
        self,
        names: tuple[str, ...] | None,
        single: bool,  # noqa: FBT001
        *,
        aux: bool = False,
    ) -> AnyProgram:
        program = self._program
        if aux is not False:
            self._check_aux(aux, program.options)
        key = (self.what, names, single, aux)
        made = program.kept(key)
        if made is None:
            options, defaults = program.options, program.defaults
            derived = Derived(
                program.body,
                self.what,
                names,
                defaults.skip,
                single,
                defaults.mode,
                defaults.sparse,
                options.memory,
                options.remat,
                aux=aux,
                roll=options.roll,
            )
            # With `remat="auto"` the budget is met by the `Derived` function, which chooses what to
            # recompute.
            memory = None if options.remat == AUTO else options.memory
            mapped = with_directions(options.vmap, derived.directions)
            made = program.with_body(
                derived, replace(options, vmap=mapped, donate=(), remat=None, memory=memory), key
            )
        return made

    def _by_positions(
        self,
        made: AnyProgram,
        act: Callable[[AnyProgram], T],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> T:
        """Call or plan a derivative whose sparsity structure depends on positions: integer arrays
        among its arguments, by their values.

        The structure of a sparse derivative has to be known before its numbers. So the arguments
        that determine it become static for such a call: other positions are another program, with
        another structure.
        """
        key = made.body
        known = self._program.positions

        # Each failure names the arguments whose values the structure needs; they are static in the
        # next try.
        while True:
            names = known.get(key, ())
            is_known = names and _are_positions(made, names, args, kwargs)
            try:
                return act(self._at_positions(made, names) if is_known else made)
            except DerivativeError as error:
                more = tuple(name for name in error.positions if name not in names)
                if not more or not _are_positions(made, more, args, kwargs):
                    raise
                known[key] = (*names, *more)

    def _at_positions(
        self,
        made: AnyProgram,
        names: tuple[str, ...],
    ) -> AnyProgram:
        """Return the program of a derivative with these arguments static."""
        key = (self.what, made.body, names)
        static = self._program.kept(key)
        if static is None:
            static_names = (*made.options.static, *names)
            options = replace(made.options, static=static_names)
            derived: Any = made.body
            static = self._program.with_body(replace(derived, positions=names), options, key)
        return static

    def _check_aux(self, aux: object, options: Options) -> None:
        if aux is not True:
            fail(
                self._where,
                f"has_aux={aux!r} is neither True nor False.",
                "It says whether the function returns (number, aux).",
                "write one.",
                code="J207",
            )
        if self.what not in ("grad", "value_and_grad"):
            fail(
                self._where,
                f"`{self.what}` takes no has_aux=True.",
                "Beside a gradient something else is handed on; other derivatives are of all that"
                " the function returns.",
                "write f.value_and_grad(..., has_aux=True), or a function that returns the number"
                " alone.",
                code="J201",
            )
        if options.memory is not None:
            fail(
                self._where,
                "`memory` and has_aux=True together are not supported yet.",
                "What is recomputed is chosen for one number.",
                "keep one, or name a policy of `jax.checkpoint_policies` in `remat`.",
                code="J201",
            )


def _are_positions(
    made: AnyProgram,
    names: tuple[str, ...],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> bool:
    """Return whether these arguments of a call can be static by value: concrete arrays of integers,
    equal for all lanes.
    """
    options = made.options
    if options.vmap or options.pad or options.chunk or options.shard:
        return False
    given = made.arguments(args, kwargs)
    leaves = tree_flatten([given.get(name, "") for name in names])[0]
    return all(map(_holds_integers, leaves))


def _holds_integers(leaf: object) -> bool:
    """Return whether a leaf is a concrete array of integers or truth values."""
    if isinstance(leaf, Tracer) or not isinstance(leaf, (np.ndarray, jax.Array)):
        return False
    return leaf.dtype.kind in "iub"


def program_of(tool: str, given: Any, wrt: Wrt = None) -> AnyProgram:
    """Return the program that a tool works on: the argument itself, or the program of a derivative.

    Raises:
        OptionError: The object is neither.
    """
    if isinstance(given, Derivative):
        return given.program(wrt=wrt)
    if not hasattr(given, "abstract"):
        raise OptionError(
            tool,
            f"{given!r} is not a program.",
            "What jitney knows of axes comes from a decoration.",
            "decorate it with @jitney.optimize, or pass a method that is.",
            code="J204",
        )
    return given


def program_of_call(
    tool: str,
    given: object,
    keywords: dict[str, Any],
) -> AnyProgram:
    """Return the program that a tool works on, given the keywords of a call. Those of a derivative
    itself (`wrt`, `has_aux`, directions) are taken out of them, as by a call of it; a direction
    that is left out has the shape of its argument.
    """
    if not isinstance(given, Derivative):
        return program_of(tool, given)
    wrt = keywords.pop("wrt", None)
    return given.ahead_of_time(keywords, wrt, aux=keywords.pop("has_aux", False))


def argument_names(
    where: Where | str,
    option: str,
    value: object,
) -> tuple[tuple[str, ...], bool]:
    """Return the names of arguments that the user gave, and whether it was a single name.

    Raises:
        OptionError: The value is neither a name nor several.
    """
    if isinstance(value, str) and value:
        return (value,), True
    if (
        isinstance(value, (tuple, list))
        and value
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    ):
        return tuple(value), False
    raise OptionError(
        where,
        f"{option}={value!r} does not name arguments.",
        f"`{option}` takes a name, or several different ones.",
        f'write {option}="x" or {option}=("x", "z").',
        code="J207",
    )


def check_names(
    where: Where | str,
    names: tuple[str, ...],
    core: FunctionInfo,
) -> None:
    """Check that these are arguments that can vary.

    Raises:
        DerivativeError: An argument does not exist.
        OptionError: An argument is static.
    """
    known = [parameter.name for parameter in core.binder.parameters]
    for name in names:
        if name not in known:
            raise unknown_name(where, name, known)
        if name in core.options.static:
            raise OptionError(
                where,
                f"{name!r} is static.",
                "A derivative is with respect to what is traced.",
                "leave it out of `static`, or out of `wrt`.",
                code="J207",
            )


@overload
def lazy_derivatives(fn: Callable[P, R], /) -> Program[P, R]: ...
@overload
def lazy_derivatives(
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
@overload
def lazy_derivatives(
    fn: Callable[P, R],
    /,
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> Program[P, R]: ...
@public
def lazy_derivatives(
    fn: object = None,
    /,
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> object:
    """Give a function its derivatives, each traced and compiled when it is first called, with
    common defaults.

    Args:
        fn: A function, or a program of `@optimize`; a plain function is put under `@optimize`
            first.
        wrt: The arguments that vary: one name, for the derivative itself, or several, for dicts by
            name. Without it, all that hold floating-point arrays.
        skip: Arguments that are left out of "all".
        mode: Computation of Jacobians: `"forward"` or `"reverse"`, one pass for each element of the
            arguments or of the results; `"coloured"`, fewer passes by their structure; or `"auto"`,
            the cheapest by their sizes and structure.
        sparse: Whether Jacobians and Hessians are `jax.experimental.sparse.BCOO` arrays instead of
            dense ones.

    Returns:
        A `Program` with `grad`, `value_and_grad`, `jacobian`, `value_and_jacobian`, `hessian`,
        `hessian_diag`, `jvp`, `vjp`, `hvp` and `linearize`.

    Raises:
        DerivativeError: A name is not the name of an argument.
        OptionError: An option is malformed.
    """
    where = "lazy_derivatives()"
    names, single = argument_names(where, "wrt", wrt) if wrt is not None else (None, False)
    left_out = argument_names(where, "skip", skip)[0] if skip is not None else ()
    if not isinstance(mode, str) or mode not in get_args(Mode):
        raise OptionError(
            where,
            f"mode={mode!r} is not a mode.",
            f"`mode` is one of {', '.join(get_args(Mode))}.",
            "choose one.",
            code="J207",
        )
    if type(sparse) is not bool:
        raise OptionError(
            where,
            f"sparse={sparse!r} is neither True nor False.",
            "`sparse` asks for BCOO arrays.",
            "write one.",
            code="J207",
        )
    if names is not None and left_out:
        raise OptionError(
            where,
            "`wrt` and `skip` are both given.",
            "`wrt` names all that varies; `skip` is for where it does not.",
            "keep one.",
            code="J201",
        )

    defaults = Defaults(names, left_out, single, mode, sparse)
    if fn is None:
        return functools.partial(_apply_defaults, defaults=defaults)
    return _apply_defaults(fn, defaults)


@public
def _apply_defaults(fn: Any, defaults: Defaults) -> Any:
    from .optimize import optimize
    from .program import Program

    method = around_method(fn, lambda fn: _apply_defaults(fn, defaults))
    if method is not None:
        return method
    program = fn if isinstance(fn, Program) else optimize(fn)
    names = (*(defaults.wrt or ()), *defaults.skip)
    check_names(program.core.where, names, program.core)
    return program.with_defaults(defaults)
