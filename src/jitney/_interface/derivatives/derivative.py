"""A derivative of a program: called, planned, compiled and exported like one.

Its program is made when it is first requested, from the function of the program that it is a
derivative of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ..._diagnosis.counters.counters import total
from ..._diagnosis.counters.stats import Stats
from ..._errors import DerivativeError, OptionError, Where
from ..._owners import public, shorten
from ..._program.entry import Specialization
from ..._public import CompletedType, completed_names, public_in
from ..._report.plan_report import Report
from ..._signature.options import (
    AUTO,
    Options,
    Wrt,
    fail,
)
from ..._stages.derivatives.arguments import COTANGENT, TANGENT
from ..._stages.derivatives.derive import Derived, What, with_directions
from ..tools import Tools
from .sparse_positions import with_static_positions
from .varying_arguments import argument_names, check_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..program import AnyProgram

P = ParamSpec("P")
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
        return with_static_positions(self._program, self.what, made, act, args, kwargs)

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
