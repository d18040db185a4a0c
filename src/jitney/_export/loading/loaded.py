"""Functions loaded from files: called like the original function, without its Python code."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..._contract.contract import check_arguments
from ..._errors import ContractError, plural, shortlist
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.settings import x64_is_on
from ..._jax.xla.exported import look_up
from ..._owners import public, shorten
from ..._program.rows.lengths import LENGTHS, takes_lengths
from ..._public import CompletedType, completed_names, public_in
from ..._signature.binding import Binder
from ..._text.shown import Shown
from ..._view.layout import aval_parts
from ..container import Content, path_of, read
from ..contract_data import contract_of, signature_of
from ..header import (
    BoundEntry,
    ProgramEntry,
    check_header,
    made_of_header,
)
from ..trees import (
    Taking,
    Tree,
    build_tree,
    missing_classes,
    resolve_tree,
)
from ..values import Find, find_nothing, import_object
from .loaded_rows import LoadedRows
from .running import (
    Run,
    RunFlat,
    check_x64,
    flat_runner,
    guard_call,
    padded_runner,
    runner,
)
from .sizes import (
    fits,
    lacks_numbers,
    nearest,
    one_line,
    sizes_of,
    takes,
)
from .versions import check_platform, check_version, deserialize_program

if TYPE_CHECKING:
    from rich.table import Table


@public_in("jitney.types")
@dataclass(frozen=True)
class ExportedProgram:
    """A lowered program in a file, for one set of sizes or for all sizes of a range.

    Args:
        sizes: Axis -> its size, or the least and the largest size.
        arguments: The arrays that it takes, as `x: float32[100]`.
        checks: Messages of its run-time checks.
        platforms: Platforms it was lowered for, by JAX's names.
        bytes: Its size in the file.
    """

    sizes: Mapping[str, Any]
    arguments: tuple[str, ...]
    checks: tuple[str, ...]
    platforms: tuple[str, ...]
    bytes: int
    plan: str = field(repr=False)
    told: ProgramEntry = field(repr=False, compare=False)
    result: Tree = field(repr=False, compare=False)


@public_in("jitney.types")
class Loaded(Shown, metaclass=CompletedType):
    """A function that was loaded from a file by `jitney.load`, and is called like the one that was
    exported.

    It takes arguments of the structure, the dtypes and one of the sizes that it was exported with;
    static arguments must equal the exported ones. If the class of a module or a named tuple cannot
    be imported, a dict of its fields replaces it. Under `jax.jit` it is a part of the outer
    program; `jax.grad` needs an export with `vjp_order=1`.

    Attributes:
        file: The path that it was loaded from.
        sha256: The digest of the file.
        versions: Versions of `jitney`, `jax` and `jaxlib` that exported it.
        settings: JAX settings that numbers depend on, at the time of the export.
        programs: Its lowered programs, one for each set of sizes.
        missing: The classes that cannot be imported here.
    """

    def __init__(self, path: Path, content: Content, find: Find = import_object):
        header = content.header
        self.file = path
        self.sha256 = content.digest
        self._size = content.size
        self.versions: dict[str, str] = {name: header[name] for name in ("jitney", "jax", "jaxlib")}
        self.settings: dict[str, str] = dict(header["settings"])
        self.contract = contract_of(header["contract"], find)
        self._where = self.contract.where
        self.__name__ = self.__qualname__ = header["name"]
        self.__doc__ = header["doc"]
        self.__signature__: inspect.Signature = signature_of(self.contract, header["contract"])
        self._binder = Binder(self._where, self.__signature__)
        # Classes and static values are resolved once; a call only compares with them.
        self._arguments = {
            name: resolve_tree(tree, self._where, find)
            for name, tree in header["arguments"].items()
        }
        self._header, self._members = header, content.members
        self.programs = tuple(
            self._program(i, told, find) for i, told in enumerate(header["programs"])
        )
        results = [program.result for program in self.programs]
        trees = (*self._arguments.values(), *results)
        missing = dict.fromkeys(name for tree in trees for name in missing_classes(tree))
        self.missing = tuple(missing)
        self._bound = [
            (data["number"], _array(data, content.members[f"array {i}"]))
            for i, data in enumerate(header["bound"])
        ]
        self._runs: dict[Hashable, Run] = {}
        self._flat: dict[Hashable, RunFlat] = {}
        self._rows: LoadedRows | None = None
        rows = header.get("rows")
        if rows is not None:
            self._rows = LoadedRows(
                rows,
                header,
                self.contract,
                self._arguments,
                self._bound,
                results[0],
                self._run_flat,
            )

    def _program(
        self,
        number: int,
        told: ProgramEntry,
        find: Find,
    ) -> ExportedProgram:
        checks = tuple(message for messages in told["checks"] for message in messages)
        return ExportedProgram(
            told["sizes"],
            tuple(one_line(aval, told["symbols"]) for aval in told["arrays"]),
            checks,
            tuple(told["platforms"]),
            len(self._members[f"program {number}"]),
            told["plan_text"],
            told,
            resolve_tree(told["result"], self._where, find),
        )

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        try:
            with self._numbers():
                if self._rows is not None:
                    given, lengths = self._without_lengths(kwargs)
                    return self._rows.call(self._binder.bind(args, given), lengths)
                taken = self._take_arguments(self._binder.bind(args, kwargs))
                # Once per shapes and dtypes a program is chosen, checked and deserialised.
                key = (x64_is_on(), *map(aval_parts, taken.arrays))
                run = self._runs.get(key)
                if run is None:
                    run = self._runs[key] = self._run(taken.arrays)
                return run(taken)
        except Exception as error:
            shorten(error)
            raise

    def _without_lengths(
        self,
        kwargs: Mapping[str, object],
    ) -> tuple[Mapping[str, object], object]:
        """Return keywords without `lengths`, and that; None if there is none."""
        if LENGTHS not in kwargs or takes_lengths(self.contract.parameters):
            return kwargs, None
        return {name: kwargs[name] for name in kwargs if name != LENGTHS}, kwargs[LENGTHS]

    def _numbers(self) -> AbstractContextManager[object]:
        # The function was exported with `precision="f64"`, which includes 64-bit types while it is
        # traced.
        x64 = jax.enable_x64
        return x64(True) if self._header["f64"] else nullcontext()  # noqa: FBT003

    def _take_arguments(self, values: Sequence[object]) -> Taking:
        """Return the arrays of a call in the order of the program, including those that it is bound
        to.
        """
        count = len(self._header["programs"][0]["arrays"])
        taking = Taking(self._where, [None] * count)
        for number, array in self._bound:
            taking.arrays[number] = array
        for (name, tree), value in zip(self._arguments.items(), values, strict=True):
            taking.take(
                tree,
                value,
                name,
            )
        return taking

    def _that_fits(self, arrays: Sequence[object]) -> int:
        """Return the number of the program that takes these arrays.

        Raises:
            ContractError: No program does.
        """
        bound = {number for number, _ in self._bound}
        for number, program in enumerate(self._header["programs"]):
            if takes(program, arrays, bound):
                return number

        # The contract explains a mismatch in terms of the annotations, if it finds one.
        if self._header["checks_contract"]:
            stand_ins = [jax.ShapeDtypeStruct(*aval_parts(array)[:2]) for array in arrays]
            values = {name: build_tree(tree, stand_ins) for name, tree in self._arguments.items()}
            check_arguments(self.contract, values)
        for program in self._header["programs"]:
            if fits(program, arrays, bound) and lacks_numbers(program, arrays):
                raise self._without_numbers(sizes_of(program, arrays))
        given, wanted, ranges = nearest(self._header["programs"], arrays)
        raise ContractError(
            self._where,
            f"no exported program takes {shortlist(given)}.",
            f"The nearest takes {shortlist(wanted)}{ranges and f' with {ranges}'}, and it is not"
            " compiled for others.",
            "pass such arrays, or export it for more: sizes={...}, where range(2, 129) stands for"
            " all sizes of an axis up to 128, and (0, 1, range(2, 129)) for 0 and 1 too, which are"
            " programs of their own.",
            code="J219",
        )

    def _without_numbers(self, sizes: Mapping[str, int]) -> ContractError:
        at = " and ".join(f"{name}={size}" for name, size in sizes.items())
        return ContractError(
            self._where,
            f"it is called at {at}, and its Python has not been looked at there.",
            "Where Python computes numbers from a size, or compares it, a file takes the sizes that"
            " were looked at when it was written: all of a bucket of up to 64 sizes, and those that"
            " were asked for of a larger one, without those at which Python does something else.",
            "export it for that size too: sizes={...}.",
            code="J219",
        )

    def _run(self, arrays: Sequence[object]) -> Run:
        number = self._that_fits(arrays)
        # All sizes of a bucket share its program.
        key = (number, x64_is_on())
        flat = self._flat.get(key)
        if flat is None:
            flat = self._flat[key] = self._run_flat(number)
        told = self._header["programs"][number]
        padding = told.get("padding")
        if padding is not None:
            flat = padded_runner(flat, told, padding, arrays)
        return runner(flat, self.programs[number].result)

    def _run_flat(self, number: int) -> RunFlat:
        """Deserialise one program and return the function that runs it."""
        told, where = self._header["programs"][number], f"{self._where}"
        check_platform(told["platforms"], where)
        check_x64(told, where)
        ensure_cache()
        # The lowering of the exported program may call LAPACK.
        if "cpu" in told["platforms"]:
            look_up()
        exported = deserialize_program(
            self._members[f"program {number}"], self._header, told, where
        )
        call = guard_call(exported.call, where, derivatives=self._header["vjp_order"])
        return flat_runner(
            call,
            told,
            self.__name__,
            where,
        )

    @property
    def plan(self) -> str:
        """Plan of each program, as of the export, and the options that were dropped."""
        left = [f"left behind: {name}: {why}" for name, why in self._header["left"]]
        return "\n".join([*dict.fromkeys(program.plan for program in self.programs), *left])

    def to_dict(self) -> dict[str, Any]:
        """Return what is known of the file as plain data."""
        names = ("sizes", "arrays", "results", "checks", "platforms", "plan")
        programs = [
            {**{name: told[name] for name in names}, "bytes": p.bytes}
            for told, p in zip(self._header["programs"], self.programs, strict=True)
        ]
        return {
            "name": self.__name__,
            "where": f"{self._where}",
            "signature": f"{self.__signature__}",
            "file": str(self.file),
            "bytes": self._size,
            "sha256": self.sha256,
            "versions": self.versions,
            "settings": self.settings,
            "vjp_order": self._header["vjp_order"],
            "left": dict(self._header["left"]),
            "missing": list(self.missing),
            "programs": programs,
        }

    def __rich__(self) -> Table:
        from ..._jax.xla.memory import text
        from ..._text.console import table

        rows: list[list[tuple[str, str]]] = [
            [("signature", "cyan"), (f"{self.__name__}{self.__signature__}", "")]
        ]
        for program in self.programs:
            sizes = (
                ", ".join(f"{name}={_size(size)}" for name, size in program.sizes.items())
                or "the sizes of its examples"
            )
            where = " and ".join(program.platforms)
            arguments = ", ".join(program.arguments)
            block = program.told.get("block")
            count = "" if block is None else f"{plural(block['rows'], 'row')} of "
            line = f"{count}{sizes}: {arguments}; {where}, {text(program.bytes)}"
            rows.append([("program", "green"), (line, "")])
            rows += [[("check", ""), (message, "")] for message in program.checks]
        order = self._header["vjp_order"]
        rows.append([("gradient", ""), (f"vjp_order={order}" if order else "not exported", "")])
        rows += [
            [("left behind", "dim"), (f"{name}: {why}", "dim")]
            for name, why in self._header["left"]
        ]
        rows += [
            [("not here", "yellow"), (f"{name}: a dict stands for it", "")] for name in self.missing
        ]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        rows.append([("exported by", ""), (versions, "")])
        rows.append([("sha256", "dim"), (self.sha256, "dim")])
        return table(f"{self._where} in {self.file.name}", rows)

    def __dir__(self) -> list[str]:
        return completed_names(self)

    def __repr__(self) -> str:
        return (
            f"<jitney loaded {self.__name__}{self.__signature__} from {self.file.name},"
            f" {plural(len(self.programs), 'program')}>"
        )


@public
def load(file: str | Path, *, imports: bool = True) -> Loaded:
    """Load what `f.export(...)` has written: a function that is called like `f`, without its Python
    code.

    Load only what you trust: a file is code for the machine. Its digest detects damage; it does not
    prove who wrote the file. The modules of classes and functions in arguments and results are
    imported if they are installed.

    Args:
        file: The path.
        imports: False imports none of these modules; dicts of their fields then replace modules and
            named tuples.

    Returns:
        A `Loaded`.

    Raises:
        ExportError: The file does not exist, is damaged, has another format, was exported by a
            later JAX, or names a class that has changed.
    """
    path = path_of(file, "jitney.load()")
    content, where = read(path), f"jitney.load({str(path)!r})"
    check_header(content.header, where)
    check_version(content.header, where)
    return made_of_header(
        lambda: Loaded(path, content, import_object if imports else find_nothing), where
    )


def _size(size: int | list[int]) -> str:
    return f"{size[0]} to {size[1]}" if isinstance(size, list) else str(size)


def _array(data: BoundEntry, content: bytes) -> jax.Array:
    x64 = jax.enable_x64
    # Bound arrays keep their dtype, even if `jax_enable_x64` is off here.
    with x64(True):  # noqa: FBT003
        dtype = jax.numpy.dtype(data["dtype"])
        host = np.frombuffer(content, dtype).reshape(data["shape"])
        array = jax.numpy.asarray(host)
    if data["impl"] is None:
        return array
    return jax.random.wrap_key_data(array, impl=data["impl"])
