"""Questions about a program without calling it, and compilation ahead of time: `compile`, `plan`,
`lower`, `trace`, `eval_shape` and `export`.

Each finds the entry of the call on abstract values (`abstract`), and asks that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, cast

import jax

from .._diagnosis.counters.listener import LISTENER
from .._diagnosis.needed_values import CAUGHT
from .._diagnosis.tracer_errors import no_number, trace_error
from .._jax.trees import tree_flatten
from .._jax.typed import Array
from .._owners import public
from .._program.entry import Specialization
from .._program.examples import abstract_values
from .._program.lowered import Lowered, Traced
from .._program.tolerance.decide import with_policy
from .._report.plan_report import Report, report
from .._report.rows import report_rows
from .._view.result import unmix
from .._view.taken_apart import take_apart
from .bound import OF_CALLS, BoundProgram

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_T = TypeVar("_T")


class ProgramAhead(BoundProgram[P, R]):
    """A program that can be asked, and compiled, before it is called."""

    @public
    def compile(
        self,
        /,
        *args: object,
        sizes: Mapping[str, int] | None = None,
        **kwargs: object,
    ) -> Self:
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
        lowered = self._explained(entry, arrays, lambda: entry.lower(arrays))
        return Lowered(self._core, entry, lowered, self._args, self._kwargs)

    @public
    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """Trace for these arguments. The result has `.jaxpr` and `.lower()`, as that of `jax.jit`
        does.
        """
        entry, arrays = self.abstract(args, kwargs, None)
        traced = self._explained(entry, arrays, lambda: entry.lower(arrays, "trace"))
        return Traced(self._core, entry, traced, self._args, self._kwargs)

    @public
    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the result of a call with `jax.ShapeDtypeStruct` for arrays, as `eval_shape` of
        `jax.jit` does. Nothing is compiled, and no trace is counted.
        """
        entry, arrays = self.abstract(args, kwargs, None)
        with entry.numbers():
            return unmix(
                self._explained(
                    entry, arrays, lambda: jax.eval_shape(entry.run_inner_stages, *arrays)
                )
            )

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
        from .._export.writing.export import export

        export(self, file, args, kwargs, sizes, vjp_order, platforms)

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
        return self._explained(entry, arrays, lambda: entry.ahead(arrays))

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

    def _explained(
        self,
        entry: Specialization,
        arrays: Sequence[Array],
        ask: Callable[[], _T],
    ) -> _T:
        """Return what an entry answers under its policy; errors of JAX are explained, where jitney
        knows the cause.
        """
        try:
            return with_policy(entry, arrays, ask)
        except CAUGHT as error:
            explained = trace_error(error, self._core.where, entry.paths, arrays)
            if explained is None:
                raise
            raise explained from error
        finally:
            entry.land()


_ahead = cast("Any", ProgramAhead)
for _method in (_ahead.ahead, _ahead.trace, _ahead.lower):
    LISTENER.attribute_to(_method, OF_CALLS)
