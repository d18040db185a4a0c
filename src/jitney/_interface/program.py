"""The `Program`: a function that compiles on its first call, with the methods that users call on
it.

`Program.__call__` is the hot path. A warm call is two steps: take the flat arrays out of the
arguments, and run them.

    f = jitney.optimize(fn)     a `Program` around a core, which equal functions share
    f(x)                        core.usual or core.find(...) -> entry, arrays; entry.run(*arrays)
    f.grad(x)                   a `Program` of the derivative, built when it is first called
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import jax

from .._diagnosis.counters import LISTENER, Counters, Owner, Stats
from .._diagnosis.exhausted import note_exhausted
from .._diagnosis.needed_values import CAUGHT
from .._diagnosis.tracer_errors import (
    donation_error,
    low_product_error,
    no_number,
    over_error,
    trace_error,
)
from .._errors import EagerWarning, TraceError
from .._jax.trees import register_pytree_node, tree_flatten
from .._jax.typed import Array
from .._owners import public, shorten, users_level
from .._program.core import REGISTRY, CompiledFunction
from .._program.entry import Retry, Specialization, Undecided, ran_eagerly
from .._program.examples import abstract_values
from .._program.held_numbers import Redirected
from .._program.leaked_tracers import left_error
from .._program.limit import PastLimit
from .._program.lowered import Lowered, Traced
from .._program.runners.fallback_calls import idle_options
from .._program.tolerance import decide, with_policy
from .._public import CompletedType, completed_names, public_in
from .._report.plan_report import Report, report
from .._report.rows import report_rows
from .._signature.options import Options, option_texts
from .._signature.resolving import innermost
from .._view.fitting import demand_floats_fit, demand_number_fits
from .._view.layout import is_nested_trace, unwrap_statics
from .._view.result import Mixed, unmix
from .._view.taken_apart import take_apart
from .derivatives import Defaults, Derivative
from .main_pickle import Parts, Sender, Sending, digest_of, known_program, remember
from .tools import Tools

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S")
_T = TypeVar("_T")
# Marks a result or a choice that does not exist yet.
_NONE = object()
_EXPLAINED = (RuntimeError, *CAUGHT)


def _function_calling(program: Program[P, R]) -> Callable[P, R]:
    """A function of Python with the signature of a program."""

    @functools.wraps(program)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return program(*args, **kwargs)

    return call


@public_in("jitney")
class Program(Tools[R], Generic[P, R], metaclass=CompletedType):
    """A function under `@optimize`. Created by `jitney.optimize`, not directly.

    It is called as the function it wraps, keeps that function's name, docstring and signature, and
    binds to instances as a method does. As a pytree it holds the arrays of the object that it is
    bound to: a module, or the arguments of a `functools.partial`.
    """

    _inside = (
        "abstract",
        "ahead",
        "arguments",
        "body",
        "bound",
        "bound_as",
        "bound_to",
        "core",
        "decorated",
        "defaults",
        "derivatives",
        "flattened",
        "found",
        "kept",
        "parted",
        "positions",
        "usual",
        "with_body",
        "with_defaults",
    )
    _args: tuple[object, ...]
    _kwargs: dict[str, object]

    def __init__(
        self,
        core: CompiledFunction,
        fn: Callable[P, R],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ):
        self._core = core
        self._fn = fn
        self._args = args
        self._kwargs = dict(kwargs or {})
        self._defaults = Defaults()
        # Set once it is pickled, if it is a program of `__main__`.
        self._sending: Sending | None = None

        # Key of `with_body` -> program of a derivative.
        self._made: dict[Key, AnyProgram] = {}
        # The programs among these that run a derivative's calls without `wrt`, `has_aux` or a
        # direction.
        self._usual: dict[str, AnyProgram] = {}
        # Sparse derivative -> the arguments that determine its structure.
        self.positions: dict[object, tuple[str, ...]] = {}

        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(fn, name):
                setattr(self, name, getattr(fn, name))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            core = self._core
            given = self._args + args if self._args else args
            by_name = {**self._kwargs, **kwargs} if self._kwargs else kwargs

            # The hot path: the taker of the latest call returns None if this call is of another
            # kind.
            entry, take = core.usual
            arrays = take(given, by_name)
            if arrays is None:
                entry, arrays = core.find(given, by_name)
            core.counters.calls += 1

            # Run. An exception is an error for the user, or a reason to repeat the call.
            out = _NONE
            choice = _NONE
            try:
                out = entry.run(*arrays)
                if entry.flights:
                    entry.await_missed_checks(out)
                return out if type(out) is not Mixed else out.outcome.build(out.arrays)
            except Retry:
                # Another thread has traced the program meanwhile.
                core.counters.calls -= 1
            except Undecided as undecided:
                # A policy has to be chosen by the values of this call (`precision="auto:..."`).
                core.counters.calls -= 1
                choice = undecided.key
            except PastLimit:
                # `max_compiles="eager:..."`.
                limit = core.options.max_compiles
                if limit is None or limit.past != "eager":
                    raise
                return entry.eagerly(*arrays)
            except Redirected:
                # The numbers that this entry holds are not needed at these shapes.
                core.counters.calls -= 1
                core.forget_takers()
            except Exception as error:
                # The body needs a number that was traced: it is held, and the call repeated.
                if (
                    entry.layout.numbers
                    and entry.flights
                    and core.hold_numbers(entry, core.bind(given, by_name), arrays, error)
                ):
                    # The failed trace is no program; the repeated call is counted.
                    core.counters.calls -= 1
                    core.counters.misses -= 1
                elif isinstance(error, OverflowError):
                    with entry.numbers():
                        demand_number_fits(core.where, entry.paths, arrays)
                    raise
                elif not isinstance(error, _EXPLAINED):
                    raise
                else:
                    # Errors of JAX, explained if jitney knows the cause.
                    untraced = trace_error(
                        error, core.where, entry.paths, arrays, eager=ran_eagerly(error)
                    )
                    if untraced is not None:
                        return self._not_traceable(untraced, error, entry, arrays)
                    named = self._explain(error, entry, arrays)
                    note_exhausted(error, core.where, core.options)
                    if named is not None:
                        raise named from error

                    # A failed check of Equinox that nobody had looked for: the repeated call
                    # reports it.
                    if not entry.note_missed_check(error):
                        raise
                    core.counters.calls -= 1
            finally:
                # Only a call that traced gets here: let waiting threads go on, and check its
                # arguments once.
                if entry.flights and entry.land():
                    core.counters.misses += 1
                    if out is not _NONE:
                        with entry.numbers():
                            demand_floats_fit(core.where, entry.paths, arrays)
            # Outside of `except`: an error of the choice does not carry Undecided as its context.
            if choice is not _NONE:
                try:
                    decide(entry, choice, arrays)
                except CAUGHT as error:
                    if not (
                        entry.layout.numbers
                        and core.hold_numbers(entry, core.bind(given, by_name), arrays, error)
                    ):
                        untraced = trace_error(error, core.where, entry.paths, arrays)
                        if untraced is None:
                            raise
                        raise untraced from error
            return self._repeat_call(core.bind(given, by_name))
        except Exception as error:
            shorten(error)
            raise

    def _explain(
        self,
        error: Exception,
        entry: Specialization,
        arrays: Sequence[Array],
    ) -> Exception | None:
        """Return an error with the cause of JAX's, or None if jitney does not know it."""
        core = self._core
        donated = (
            donation_error(error, core.where, arrays, entry.paths, entry.layout.donated)
            if core.options.donate
            else None
        )
        return (
            donated
            or low_product_error(error, core.where)
            or no_number(core.where, arrays, entry.paths)
            or over_error(error, core.where, core.fn(), core.options)
            or left_error(error, core.where, entry.reads)
        )

    def _repeat_call(self, values: tuple[object, ...]) -> R:
        """Repeat the whole call, from arguments in normal form."""
        return self._core.binder.call(Program(self._core, self._fn), unwrap_statics(values))

    def _not_traceable(
        self,
        untraced: TraceError,
        error: Exception,
        entry: Specialization,
        arrays: Sequence[Array],
    ) -> R:
        core = self._core
        if ran_eagerly(error) or core.options.on_trace_error == "raise":
            raise untraced from error
        # The failed trace does not count: the call is counted as an eager one.
        core.counters.misses -= 1
        if not is_nested_trace(arrays):
            entry.turn_eager()
        if core.counters.warn_once("eager"):
            first_line = str(untraced).splitlines()[0]
            warnings.warn(
                f"{first_line}\nIt runs un-jitted from now on, as"
                f" `on_trace_error='eager'` asks.{idle_options(core.options)}",
                EagerWarning,
                stacklevel=users_level(),
            )
        try:
            return entry.eagerly(*arrays)
        except CAUGHT as again:
            explained = trace_error(again, core.where, entry.paths, arrays, eager=True)
            if explained is None:
                raise
            raise explained from again

    # Questions about the function, and compilation ahead of time.

    @property
    def stats(self) -> Stats:
        """Traces, compiles, cache hits and seconds so far; shared by programs of equal functions
        with equal options.
        """
        calls: dict[str, int] = {}
        for (what, *_), program in self._made.items():
            calls[what] = calls.get(what, 0) + program.core.counters.calls
        stats = self._core.counters.stats()
        return replace(stats, derivatives=calls)

    @property
    def options(self) -> Options:
        """Options of the decoration."""
        return self._core.options

    @public
    def compile(
        self,
        /,
        *args: object,
        sizes: Mapping[str, int] | None = None,
        **kwargs: object,
    ) -> Program[P, R]:
        """Compile ahead of time, so that the first call with such arguments neither traces nor
        compiles.

        There is one exception: a function with run-time checks of Equinox (`eqx.error_if`) that
        Equinox runs, as with `shard`, is compiled once more on its first call. For rows of unlike
        lengths it compiles the programs of their buckets, for as many rows as there are and fewer.

        Args:
            args: Examples for the leading parameters: arrays, modules, `jax.ShapeDtypeStruct`,
                static values. For a parameter that is left out, an abstract value is built from its
                annotation: `Float` is JAX's default float, strongly typed.
            sizes: Axis name -> size, for the annotations of parameters that are left out, and for
                the axis of `vmap`. The axis of `vmap` is added to each array that is left out; if
                there are several, a warning names them, since calls may share some of them.
            kwargs: Examples by name, including static arguments.

        Returns:
            This program.

        Raises:
            ContractError: A size is missing, unknown, or contradicts an example.
        """
        rows = self._core.rows_in(self._args + args, {**self._kwargs, **kwargs})
        if rows is None:
            self.ahead(args, kwargs, sizes)
        else:
            rows.compile()
        return self

    @public
    def plan(
        self,
        /,
        *args: object,
        sizes: Mapping[str, int] | None = None,
        **kwargs: object,
    ) -> Report:
        """Return every decision about a call with such arguments (see `compile`), with its reason.

        The body runs, on abstract values, only with `donate`, under `vmap`, and where `precision`
        casts products or computes in a low dtype: its results determine which buffers can be
        reused, its operations which branches all elements compute and which products are cast, its
        constants which values the dtype lacks. `stats` counts no trace for that. Nothing is
        compiled, with two exceptions: `memory` decides by compiling, and a gradient with a policy
        of `remat` is compiled with it and without.
        """
        given, named = self._args + args, {**self._kwargs, **kwargs}
        rows = self._core.rows_in(given, named)
        if rows is not None:
            return report_rows(self._core, rows)
        # No warning about mapped arguments: the report has a line about `vmap`.
        entry, arrays = self.abstract(args, kwargs, sizes, warn=False)
        return report(self._core, entry, arrays)

    @public
    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """Trace and lower for these arguments, without compiling. The result has `.as_text()` and
        `.compile()`, as that of `jax.jit` does.
        """
        entry, arrays = self.abstract(args, kwargs, None)
        try:
            lowered = with_policy(entry, arrays, lambda: entry.lower(arrays))
            return Lowered(self._core, entry, lowered, self._args, self._kwargs)
        except CAUGHT as error:
            explained = trace_error(error, self._core.where, entry.paths, arrays)
            if explained is None:
                raise
            raise explained from error
        finally:
            entry.land()

    @public
    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """Trace for these arguments. The result has `.jaxpr` and `.lower()`, as that of `jax.jit`
        does.
        """
        entry, arrays = self.abstract(args, kwargs, None)
        try:
            traced = with_policy(entry, arrays, lambda: entry.lower(arrays, "trace"))
            return Traced(self._core, entry, traced, self._args, self._kwargs)
        except CAUGHT as error:
            explained = trace_error(error, self._core.where, entry.paths, arrays)
            if explained is None:
                raise
            raise explained from error
        finally:
            entry.land()

    @public
    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the result of a call with `jax.ShapeDtypeStruct` for arrays, as `eval_shape` of
        `jax.jit` does. Nothing is compiled, and no trace is counted.
        """
        entry, arrays = self.abstract(args, kwargs, None)
        try:
            with entry.numbers():
                return unmix(
                    with_policy(
                        entry, arrays, lambda: jax.eval_shape(entry.run_inner_stages, *arrays)
                    )
                )
        except CAUGHT as error:
            explained = trace_error(error, self._core.where, entry.paths, arrays)
            if explained is None:
                raise
            raise explained from error

    @public
    def export(
        self,
        file: str | Path,
        /,
        *args: object,
        sizes: Mapping[str, object] | None = None,
        vjp_order: int = 0,
        platforms: Sequence[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Write this program to a file, from which `jitney.load` returns a function without the
        source code.

        Args:
            file: Path of the file, which is replaced as a whole.
            args: Examples, as for `compile`. Of rows of unlike lengths the file has the buckets.
            sizes: Axis -> its size; a tuple of sizes, each of which is a program; or a `range` for
                one program of all its sizes.
            vjp_order: How often `jax.grad` can be applied to the loaded function. The derivative
                itself is exported by `f.grad.export(...)`.
            platforms: Platforms that it is lowered for, as `jax.export` names them: "cpu", "cuda",
                "rocm", "tpu"; without it, the default device.
            kwargs: Examples by name.

        Raises:
            ContractError: A size is missing, unknown, or contradicts an example.
            ExportError: The program contains something that a file cannot hold: calls of Python, a
                device mesh, a class that JAX cannot rebuild from its fields.
        """
        from .._export.writing import export

        export(self, file, args, kwargs, sizes, vjp_order, platforms)

    def clear_cache(self) -> None:
        """Forget everything that was traced and compiled for this function and its derivatives, as
        `clear_cache` of `jax.jit` does. The counters stay.
        """
        self._core.forget()
        for made in self._made.values():
            made.clear_cache()

    # Derivatives, each built when it is first called.

    @property
    def grad(self) -> Derivative[P, Any]:
        """Gradient of a function that returns one number."""
        return Derivative(self, "grad")

    @property
    def value_and_grad(self) -> Derivative[P, tuple[R, Any]]:
        """The number, and its gradient."""
        return Derivative(self, "value_and_grad")

    @property
    def jacobian(self) -> Derivative[P, Any]:
        """Jacobian: for each array of the result, its shape followed by the argument's. Several
        arguments share one program.
        """
        return Derivative(self, "jacobian")

    @property
    def value_and_jacobian(self) -> Derivative[P, tuple[R, Any]]:
        """The result, and its Jacobian."""
        return Derivative(self, "value_and_jacobian")

    @property
    def hessian(self) -> Derivative[P, Any]:
        """Second derivatives of a function that returns one number; for several arguments a dict of
        dicts.
        """
        return Derivative(self, "hessian")

    @property
    def jvp(self) -> Derivative[..., tuple[R, Any]]:
        """The result, and its derivative along `tangents`."""
        return Derivative(self, "jvp")

    @property
    def vjp(self) -> Derivative[..., tuple[R, Any]]:
        """The result, and the gradient of its product with `cotangent`."""
        return Derivative(self, "vjp")

    @property
    def hvp(self) -> Derivative[..., Any]:
        """Product of the Hessian with `tangents`."""
        return Derivative(self, "hvp")

    @property
    def linearize(self) -> Derivative[P, tuple[R, Callable[..., Any]]]:
        """The result, and a linear function from directions of the arguments to directions of the
        result.
        """
        return Derivative(self, "linearize")

    # Interface to jitney's own modules; `__dir__` hides it (`_inside`).

    def ahead(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        sizes: Mapping[str, int] | None = None,
    ) -> jax.stages.Compiled:
        """Compile for a call, and return JAX's program of it; for a padded call, the program of its
        bucket.
        """
        entry, arrays = self.abstract(args, kwargs, sizes)
        try:
            return with_policy(entry, arrays, lambda: entry.ahead(arrays))
        except CAUGHT as error:
            explained = trace_error(error, self._core.where, entry.paths, arrays)
            if explained is None:
                raise
            raise explained from error
        finally:
            entry.land()

    @property
    def core(self) -> CompiledFunction:
        """State that is shared with programs of equal functions with equal options."""
        return self._core

    @property
    def body(self) -> Callable[..., object]:
        """The function itself, unbound."""
        return self._fn

    @property
    def defaults(self) -> Defaults:
        """Defaults of its derivatives, for calls without `wrt`."""
        return self._defaults

    def with_body(
        self,
        fn: Callable[..., object],
        options: Options,
        key: Key | None = None,
    ) -> AnyProgram:
        """Return the program of another function of the same arguments, bound as this one is. With
        a key it is cached.
        """
        made = Program(REGISTRY.core(fn, options, self._core.namespace), fn)
        if key is not None:
            self._made[key] = made
        return made.bound_as(self)

    def kept(self, key: Key) -> AnyProgram | None:
        """Return the program that `with_body` cached under a key."""
        made = self._made.get(key)
        return made and made.bound_as(self)

    def derivatives(self, what: str) -> list[AnyProgram]:
        """Return the cached programs of one derivative, with respect to any arguments."""
        return [made for key, made in self._made.items() if key[0] == what]

    @property
    def usual(self) -> dict[str, AnyProgram]:
        """Derivative -> the program of its calls without `wrt` and without a direction, after the
        first such call. Empty for a bound program.
        """
        return {} if self._args or self._kwargs else self._usual

    def bound_as(self, other: AnyProgram) -> AnyProgram:
        """Return this program, bound to the same arguments as another one."""
        if not other._args and not other._kwargs:
            return self
        return self.bound_to(other._args, other._kwargs)

    def with_defaults(self, defaults: Defaults) -> Program[P, R]:
        """Return the same program with other defaults for its derivatives; see
        `lazy_derivatives`.
        """
        same = self._with(
            _defaults=defaults,
            _made={},
            _usual={},
            positions={},
        )
        return same.decorated() if "__call__" in vars(self) else same

    def arguments(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> dict[str, object]:
        """Return the arguments of a call by name."""
        values = self._core.bind(self._args + args, {**self._kwargs, **kwargs})
        names = [parameter.name for parameter in self._core.binder.parameters]
        return dict(zip(names, values, strict=True))

    @property
    def bound(self) -> Bound:
        """Arguments that this program is bound to: by position, and by name."""
        return self._args, self._kwargs

    def parted(self) -> tuple[tuple[object, ...], AnyProgram]:
        """Return the bound positional arguments, and the unbound program."""
        return self._args, self.bound_to((), {})

    def bound_to(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> AnyProgram:
        """Return the same program bound to these arguments. Cheap, since it happens on every call
        of a method.
        """
        same = object.__new__(type(self))
        held = vars(same)
        held.update(vars(self))
        held["_args"], held["_kwargs"] = args, kwargs
        held.pop("__call__", None)
        return same

    def _with(self, **changed: object) -> Program[P, R]:
        same = self.bound_to(self._args, self._kwargs)
        vars(same).update(changed, _sending=None)
        return same

    def decorated(self) -> Program[P, R]:
        """Return this program, for a line below beartype. That decorates `program.__call__` in
        place of an object that is not a function, and what it finds there is a program; or, where
        beartype is to check in place of the contract, a function that calls it.
        """
        same = self._with()
        if not self.__no_type_check__:
            vars(self)["__call__"] = _function_calling(same)
        else:
            vars(self)["__call__"] = same
        return self

    def abstract(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        sizes: Mapping[str, int] | None,
        *,
        warn: bool = True,
    ) -> tuple[Specialization, tuple[Any, ...]]:
        """Return the entry of a call, and its arrays or abstract values; see `compile`."""
        args = self._args + args
        named = {**self._kwargs, **kwargs}
        return self.found(*abstract_values(self._core, args, named, sizes, warn=warn))

    def found(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> tuple[Specialization, tuple[Any, ...]]:
        """Return the entry of a complete call, bound arguments included, and its arrays or abstract
        values.
        """
        core = self._core
        values = core.bind(args, kwargs)
        core.refuse_rows(values)
        values = take_apart(values)
        leaves, treedef = tree_flatten(values)
        layout, entry = core.settled(core.layout((treedef, *map(type, leaves)), values), leaves)
        arrays = tuple(layout.pick(leaves))
        unfit = no_number(core.where, arrays, entry.paths, called=False)
        if unfit is not None:
            raise unfit
        return entry, arrays

    # Protocols of a function: methods, wrappers, printing, equality, copying, pickling.

    @overload
    def __get__(self, instance: None, owner: object = None, /) -> Program[P, R]: ...
    @overload
    def __get__(
        self: Program[Concatenate[S, Q], _T], instance: S, owner: object = None, /
    ) -> Program[Q, _T]: ...
    def __get__(self, instance: object, owner: object = None, /) -> object:
        if instance is None:
            return self
        return self.bound_to((*self._args, instance), self._kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The decorated object: the function, the bound method, the module or the partial."""
        fn, args = self._fn, self._args
        if not args and not self._kwargs:
            return fn
        if len(args) == 1 and not self._kwargs:
            instance: Any = args[0]
            return instance if is_call_of(fn, instance) else types.MethodType(fn, instance)
        return functools.partial(fn, *args, **self._kwargs)

    @property
    def __globals__(self) -> dict[str, object]:
        """Globals of the function, where a type checker looks names up."""
        return getattr(innermost(self._fn)[0], "__globals__", {})

    @property
    def __no_type_check__(self) -> bool:
        """True if a type checker that stands above has nothing to check, by the mark of
        `typing.no_type_check`: the contract is checked, and the annotations say what the body sees,
        which under `vmap` is not what is passed.
        """
        return self._core.options.contracts

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    def __repr__(self) -> str:
        chosen = option_texts(self._core.options)
        options = f" {', '.join(chosen)}" if chosen else ""
        return f"<jitney program {self._core.where}{options}>"

    def __dir__(self) -> list[str]:
        """Return the public names, for completion, without those for jitney's own modules."""
        return completed_names(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        if self._core is not other._core or tuple(self._kwargs) != tuple(other._kwargs):
            return False

        # Bound arguments are compared by identity: `==` of arrays is an array.
        mine = (*self._args, *self._kwargs.values())
        theirs = (*other._args, *other._kwargs.values())
        return len(mine) == len(theirs) and all(map(operator.is_, mine, theirs))

    def __hash__(self) -> int:
        return hash((id(self._core), *map(id, self._args), *map(id, self._kwargs.values())))

    def flattened(self) -> tuple[Bound, _Function]:
        """Return the children and the auxiliary data of the pytree node: bound arguments, and the
        function.
        """
        return (self._args, self._kwargs), _Function(self._core, self._fn)

    def __copy__(self) -> Program[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Program[P, R]:
        if not self._args and not self._kwargs:
            # A plain function copies to itself, too.
            return self
        args, kwargs = copy.deepcopy((self._args, self._kwargs), memo)
        return Program(self._core, self._fn, args, kwargs)

    def __reduce__(self) -> str | tuple[object, ...]:
        # As a function is pickled: by its name, which must lead to this very program.
        if self._args or self._kwargs or not _found_by_name(self):
            return _restore, (self._fn, self._core.options, self._args, self._kwargs)
        if self.__dict__["__module__"] != "__main__":
            return self.__dict__["__qualname__"]
        sending = self._sending_from_main()
        digest = digest_of(self._parts)
        return _receive, (sending.token, digest), (sending.sender, digest)

    def __setstate__(self, state: tuple[Sender, str | None]) -> None:
        # A program that is known here already stays as it is.
        if "_core" in vars(self):
            return
        sender, digest = state
        fn, options, defaults = sender()
        Program.__init__(self, REGISTRY.core(fn, options), fn)
        self._defaults = cast("Defaults", defaults)
        remember(self, digest)

    @property
    def _parts(self) -> Parts:
        return self._fn, self._core.options, self._defaults

    def _sending_from_main(self) -> Sending:
        if self._sending is None:
            self._sending = Sending(self, self.__dict__["__qualname__"], self._parts)
        return self._sending

    @property
    def _sender(self) -> Sender:
        """The function that `main_pickle` has pickle find by its name."""
        return self._sending_from_main().sender


def is_call_of(fn: object, instance: object) -> bool:
    """Return whether calling `instance` runs `fn`."""
    return callable(instance) and type(instance).__call__ is fn


def _found_by_name(program: Any) -> bool:
    reached = sys.modules.get(program.__module__ or "")
    for part in program.__qualname__.split("."):
        reached = getattr(reached, part, None)
    return reached is program


def _restore(
    fn: Callable[..., object],
    options: Options,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> AnyProgram:
    return Program(REGISTRY.core(fn, options), fn, args, kwargs)


def _receive(token: str, digest: str | None) -> AnyProgram:
    """Return a known program, or one that its state is yet to fill: functions of `__main__` may
    refer to each other, so a program is an object before its function is.
    """
    known = known_program(token, digest)
    return Program.__new__(Program) if known is None else cast("AnyProgram", known)


class _Function:
    """Auxiliary data of a program as a pytree node: everything but its bound arrays. It keeps the
    function alive.
    """

    def __init__(self, core: CompiledFunction, fn: Callable[..., object]):
        self.core = core
        self.fn = fn

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self.core is other.core

    def __hash__(self) -> int:
        return hash(id(self.core))


AnyProgram = Program[..., Any]
"""A program of any arguments and any result."""
Key = tuple[str, *tuple[object, ...]]
"""A derivative, and its other options."""
Bound = tuple[tuple[object, ...], dict[str, object]]
"""Arguments that a program is bound to: by position, and by name."""
_Locals = dict[str, Any]
"""Local variables of a frame."""
_program: Any = Program
register_pytree_node(
    Program,
    _program.flattened,
    lambda function, bound: Program(function.core, function.fn, *bound),
)


def _counters(names: _Locals) -> Counters:
    return names["self"].core.counters


def _call_arrays(names: _Locals) -> Sequence[Array]:
    return names["arrays"]


# Compiles below these methods belong to the program: the listener finds their frames, and reads the
# local variables `self`, `entry` and `arrays`.
for _method in (_program.__call__, _program.ahead, _program.trace, _program.lower):
    LISTENER.attribute_to(
        _method,
        Owner(
            _counters,
            lambda names, call: names["entry"].compile_event(_call_arrays(names), call),
            _call_arrays,
        ),
    )
