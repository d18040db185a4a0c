"""The `@optimize` decorator: reads the signature and the options of a function, and returns a
`Program`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, Unpack, overload

import equinox as eqx
import numpy as np

from .._errors import OptionError
from .._host.switches import SETTINGS, read_disabled
from .._owners import public
from .._program.registry import REGISTRY
from .._signature.binding import around_method, where_of
from .._signature.options import OptionKeywords, Options, read_options
from .._signature.renamed import with_present_names
from .._values.mutable_objects import is_plain
from .program import Program

P = ParamSpec("P")
R = TypeVar("R")

Unwrapped = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]
"""A function, and the arguments that a callable binds it to: by position, and by name."""


@overload
def optimize(fn: Callable[P, R], /) -> Program[P, R]: ...
@overload
def optimize(
    **options: Unpack[OptionKeywords],
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
@overload
def optimize(
    fn: Callable[P, R],
    /,
    **options: Unpack[OptionKeywords],
) -> Program[P, R]: ...
@public
def optimize(fn: object = None, /, **options: object) -> object:
    """Compile a function as its signature says, without rewriting it.

    Arrays are traced, everything else is static; an annotation decides where it says more. See the
    page "Options" of the documentation.

    Args:
        fn: A function, method, `functools.partial`, or callable Equinox module.
        static: Arguments that are static as a whole; unhashable ones are keyed by value.
        donate: Arguments whose buffers the call may overwrite.
        vmap: An axis that the signature does not name: arrays with one axis more than their
            annotation are mapped over the leading one. A dict, {axis: {argument: position}}, states
            the mapped arguments explicitly, outermost axis first, and parts of them by their paths:
            {axis: {"model.head": 0}}. None is the position of a part that is shared.
        pad: Axis name -> buckets (`"pow2"`, `"aligned"`, `"auto"`, a list of sizes, a
            `jitney.Bucket`). Sizes share the program of their bucket; results are those of the
            exact size. A function for which that cannot be proven runs at exact size, with one
            warning. With `vmap`, rows of unlike lengths are mapped: a list of arrays, or padded
            arrays with the keyword `lengths={axis: lengths}` of the call.
        ragged: The form of a result that has a padded axis, where rows of unlike lengths are
            mapped: a `"list"` of arrays, or `"padded"`, a `jitney.types.PaddedRows`: one array, in
            which zeros stand behind each row, and the lengths.
        chunk: Axis name -> the number of its elements that are processed at a time, or `"auto"`.
            Sums are accumulated over the chunks, in as many passes as the body needs; an operation
            that cannot be cut raises an `AxisError` that names the line. `"fast"` measures, at the
            first call of a size, how many elements of the axis of `vmap` are quickest.
        memory: Limit on the bytes of temporaries and arguments, as the compiler counts them: a
            number, a text such as `"2GiB"`, or `"auto"` for the free memory. A program that exceeds
            it is cut into chunks, along the axis of `chunk` or the longest that can be cut.
        remat: Recompute intermediate values in the backward pass: True, the name of a policy in
            `jax.checkpoint_policies`, or what a factory there returns. `"auto"` recomputes the
            least that brings a gradient of this function below `memory`; if nothing does, a
            `BudgetError` states the least possible.
        roll: `"auto"` compiles one of several identical layers in sequence, and runs it in a loop,
            where that is proven to give the same, compiles much faster and runs as fast; `plan`
            reports it. See `jitney.stack` for their weights.
        precision: `"bf16"` and `"fp16"` compute matrix products and convolutions in the low dtype,
            accumulated in float32, and everything else unchanged; a dict sets it by module path,
            and `"auto:1e-2"` chooses by the error on the first call's arguments. `"bf16-all"`,
            `"fp16-all"`, `"f32"` and `"f64"` compute everything in that dtype; arguments and
            results keep theirs. `"tf32"` sets the precision of matrix products.
        cache: Store compiled programs in the persistent compilation cache. `"program"` also stores
            the traced and lowered program, so that another process does neither, where both would
            certainly give the same; `plan` says why if it is not stored. New: see the page
            "Caching".
        contracts: Check calls against the annotations, once for each new call key.
        runtime_checks: When a failed run-time check of Equinox (`eqx.error_if`) raises its error:
            in the call, which waits for it, or (`"later"`) in a later call of this thread that
            finds it, in `jitney.wait()`, or at the end of Python.
        on_trace_error: Reaction to a body that needs a concrete value: an error, or the same
            function un-jitted.
        on_compile_error: Reaction to a program that XLA cannot compile: its error, or the same
            function un-jitted from then on, with a warning.
        on_memory_error: Reaction to a call that runs out of memory: its error, or the call once
            more in smaller chunks, or un-jitted, with a warning. Calls then wait for their results,
            as some devices report it only there.
        max_compiles: The number of programs that this function may compile, including those from
            the persistent cache. Past it a warning has the cause of each; `"raise:3"` makes it a
            `CompileError`, `"eager:3"` runs new kinds of calls un-jitted.
        compiler: `"fast"` asks XLA for short compile times at the cost of run time; a dict has
            XLA's own options, `{"xla_backend_optimization_level": 1}`. None for the setting of
            `jitney.configure(compiler=...)` or `JITNEY_COMPILER`.
        debug_nans: Name the first operation that produces a NaN or an infinity in a result. None
            for the setting of `jitney.configure(debug_nans=...)` or `JITNEY_DEBUG_NANS`.
        shard: Named axis -> the mesh axis (or several, or `"*"` for all) that it is sharded over,
            for arguments, results and fields of modules; `"fsdp"` to shard each parameter along its
            largest axis that divides; or both: `("fsdp", {"batch": "data"})`.
        mesh: The devices, from `jitney.mesh` or `jax.make_mesh`. Without it the mesh of the context
            is used, and must exist; `"optional"` lets a call without one run as if there were no
            `shard`.
        verify: Run each new program as plain `jax.jit` too, and compare. None for the setting of
            `jitney.configure(verify=...)` or `JITNEY_VERIFY`.
        workers: The number of threads that share the axis of `vmap` on a CPU, of several the
            outermost, or `"auto"` for as many as there are cores to be had. Each runs the compiled
            program on its part; the call waits for all of them.
        auto: Choose by measuring how many elements of the axis of `vmap` run at a time, and on a
            CPU in how many threads. It tries nothing before calls have taken as long as their
            compile did, and remembers its choice beside the persistent cache. `"exact"` takes only
            what gave results equal to the bit. None for the setting of `jitney.configure(auto=...)`
            or `JITNEY_AUTO`.
        progress: Show by a bar how many chunks of a call are done, and the time left. It is drawn
            by callbacks, a hundred of them at most.

    Returns:
        A `Program`, or without `fn` a decorator that returns one.

    Raises:
        OptionError: An option is unknown, malformed, contradicts another or the signature, or is
            not implemented yet.
    """
    options = with_present_names("optimize()", options)

    # Local names that annotations may use. Two frames up, past the wrapper of `public`.
    namespace = sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage] - past `public`
    if fn is None:
        # An invalid option is an error here, at the line of the decorator.
        chosen = read_options("optimize()", options)
        return functools.partial(_decorate, options=chosen, namespace=namespace)
    return _decorate(fn, options, namespace)


@public
def _decorate(
    fn: object,
    options: Mapping[str, object] | Options,
    namespace: Mapping[str, object],
) -> Any:
    method = around_method(fn, lambda fn: _decorate(fn, options, namespace))
    if method is not None:
        return method
    if not callable(fn):
        raise OptionError(
            "optimize()",
            f"{fn!r} is not callable.",
            "`optimize` takes a function, or options by keyword.",
            "write @optimize above a function, or @optimize(static=...).",
            code="J204",
        )

    # Refuse callables that cannot be traced.
    function, args, kwargs = _unwrap_callable(fn)
    where = where_of(function)
    if isinstance(function, np.ufunc):
        raise OptionError(
            "optimize()",
            f"{function.__name__!r} is a ufunc of NumPy's kind: {function!r}.",
            "It works on the values of NumPy arrays, and traced arrays have none.",
            "decorate the function of that name in `jax.numpy` or `jax.scipy.special`; leave a"
            " ufunc of your own as it is.",
            code="J204",
        )
    is_generator = inspect.isgeneratorfunction(function)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if is_generator or is_async:
        kind = "a generator" if is_generator else "an `async` function"
        raise OptionError(
            where,
            f"it is {kind}, which runs bit by bit.",
            "What is traced runs once, from beginning to end, and returns arrays.",
            "decorate the function that computes, and await or yield around it.",
            code="J204",
        )

    chosen = options if isinstance(options, Options) else read_options(where, options)
    SETTINGS.read_environment(where)
    off = read_disabled(where)
    if off is not None:
        chosen = replace(chosen.plain, disabled=off)
    core = REGISTRY.core(function, chosen, namespace)
    program = Program(core, function, args, kwargs)
    names = {**getattr(function, "__globals__", {}), **namespace}
    return program.decorated() if _has_beartype(names) else program


def _has_beartype(names: Mapping[str, object]) -> bool:
    """Return whether beartype may decorate what stands among these names: by itself, or by its hook
    of imports, which adds names to a module.
    """
    beartype = sys.modules.get("beartype")
    if beartype is None:
        return False
    own = (beartype, getattr(beartype, "beartype", None))
    return any(
        "beartype" in name or any(value is each for each in own) for name, value in names.items()
    )


def _unwrap_callable(fn: Callable[..., object]) -> Unwrapped:
    """Return the function of a callable, and the arguments that it is bound to. They are traced
    like all others, and do not become constants.
    """
    if isinstance(fn, functools.partial):
        inner, args, kwargs = _unwrap_callable(fn.func)
        return inner, (*args, *fn.args), {**kwargs, **fn.keywords}
    if isinstance(fn, types.MethodType):
        return fn.__func__, (fn.__self__,), {}
    if isinstance(fn, Program):
        return fn, (), {}
    if isinstance(fn, eqx.Partial):
        inner, args, kwargs = _unwrap_callable(fn.func)
        return inner, (*args, *fn.args), {**kwargs, **fn.keywords}
    if isinstance(fn, eqx.Module):
        bound = getattr(fn, "__self__", None)
        # A method of a module, which Equinox wraps in a module of its own.
        if bound is not None:
            method: Any = fn
            return method.__func__, (bound,), {}
        return type(fn).__call__, (fn,), {}
    kind = type(fn)
    # A callable object of a plain class: its attributes may change.
    if is_plain(kind) and isinstance(kind.__call__, types.FunctionType):
        return kind.__call__, (fn,), {}
    return fn, (), {}
