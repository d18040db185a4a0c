"""Checkpoints of pytrees whose arrays may be on many devices, in many processes, by orbax.

Orbax reads and writes arrays, each device its own part. This module adds what it does not do:
Equinox modules, whose code stays the caller's; the path of a leaf that does not fit; a check that
all processes save the same; and checksums, since orbax does not notice a flipped bit of an array.

Checkpoints of streams are in `_stream/resume.py`.
"""

from __future__ import annotations

import importlib.util
import operator
import os
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import numpy as np

from .._errors import DataWarning, JitneyError, OptionError, format_error, shortlist
from .._jax.trees import (
    Tracer,
    issubdtype,
    keystr,
    tree_flatten_with_path,
    tree_unflatten,
)
from .._owners import public, users_level
from .._public import public_in
from .._view.view import is_array
from .checkpoint_values import (
    Row,
    checksum,
    checksum_of,
    empty_like,
    from_rows,
    is_code,
    is_key,
    is_value,
    like_leaf,
    orbax,
    plain,
    restore_argument,
    to_rows,
)
from .compare_processes import compare, digest, is_local

Leaves = Sequence[tuple[str, Any]]
"""Leaves of the user's tree with their paths."""


@public_in("jitney.processes")
class Checkpoints:
    """Checkpoints of one training run, in one folder. A save that is cut short leaves earlier ones
    intact.

        checkpoints = jitney.processes.Checkpoints("runs/a")
        # as given, at step 0, if there is none yet
        step, (model, state) = checkpoints.restore((model, state))
        while step < 10_000:
            model, state = update(model, state, ...)
            step += 1
            if step % 100 == 0:
                checkpoints.save(step, (model, state))

    Arrays are saved, and Python's numbers, booleans, texts and bytes, to the bit. Code (functions,
    classes, dtypes) and static fields are taken from the tree that `restore` is given. Any other
    leaf, such as a `np.random.Generator`, is an error with its path.

    Shardings are not a part of a checkpoint: it can be restored onto another mesh, by another
    number of processes. In a run of several processes all of them call `save` and `restore`, and
    see one file system.

    Args:
        folder: Path of the folder; created if it is missing.
        keep: Number of the newest checkpoints that stay.

    Raises:
        OptionError: `keep` is not a number, the folder is an address, or orbax is not installed.
    """

    @public
    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2):
        if not isinstance(folder, (str, os.PathLike)):
            raise OptionError(
                "jitney.processes.Checkpoints()",
                f"a {type(folder).__name__} is not a folder.",
                "A folder is a path.",
                'write jitney.processes.Checkpoints("run").',
                code="J220",
            )
        self.folder = Path(folder).absolute()
        self.keep = keep
        self._where = f"jitney.processes.Checkpoints({str(folder)!r})"
        if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
            raise OptionError(
                self._where,
                f"keep={keep!r} is not a number of checkpoints.",
                "The newest are kept.",
                "write keep=2.",
                code="J220",
            )
        if "://" in str(folder):
            raise OptionError(
                self._where,
                "that is not a folder of a file system.",
                "Checkpoints are written to files.",
                "mount the storage, and give the folder where it is.",
                code="J220",
            )
        if (
            importlib.util.find_spec("orbax") is None
            or importlib.util.find_spec("orbax.checkpoint") is None
        ):
            raise OptionError(
                self._where,
                "orbax is not installed.",
                "It writes and reads checkpoints of arrays on many devices.",
                'install "jitney[checkpoint]", or orbax-checkpoint.',
                code="J220",
            )

    @property
    @public
    def steps(self) -> tuple[int, ...]:
        """The steps that are saved, oldest first."""
        with self._reading(self.folder):
            return tuple(sorted(orbax().utils.checkpoint_steps(self.folder)))

    @public
    def save(self, step: int, tree: object) -> None:
        """Save the arrays of a tree and its Python values; waits until they are written.

        Args:
            step: A number from 0, above those that are saved.
            tree: Modules, states of optimisers, or any tree with arrays.

        Raises:
            JitneyError: The step is not above those that are saved, there is no array, an array has
                no numbers, or a leaf is neither an array, a Python value nor code.
            ProcessError: Processes differ in what they save.
        """
        step = self._number(step)
        steps = self.steps
        leaves, values = self._parts(tree)
        self._refuse(leaves)
        rows = to_rows(values)
        self._agree("save", step, leaves, rows, numbers=True)
        if steps and step <= steps[-1]:
            raise JitneyError(
                self._where,
                f"step {step} was to be saved, and step {steps[-1]} is saved already.",
                "The newest checkpoint is that of the highest step.",
                "go on from the newest, or take another folder.",
                code="J283",
            )
        if not any(leaf.size for _, leaf in leaves):
            raise JitneyError(
                self._where,
                "there is no array.",
                "Arrays are what is saved.",
                "pass a tree that has some.",
                code="J284",
            )
        # Orbax does not take empty arrays; `restore` creates them from their shapes.
        arrays = {f"{i:05}": plain(leaf) for i, (_, leaf) in enumerate(leaves) if leaf.size}
        names: list[list[str]] = []
        for name, leaf in leaves:
            impl = str(jax.random.key_impl(leaf)) if is_key(leaf) else ""
            names.append([name, *_kind(leaf), impl])
        described = {
            "arrays": names,
            "checksums": {i: checksum(array) for i, array in arrays.items()},
            "values": rows,
            "values_checksum": checksum_of(rows),
        }
        ocp = orbax()
        with self._manager(clean=True) as manager:
            content = ocp.args.Composite(
                arrays=ocp.args.PyTreeSave(arrays),
                names=ocp.args.JsonSave(described),
            )
            manager.save(step, args=content)

    @public
    def restore(
        self,
        like: object,
        *,
        step: int | None = None,
    ) -> tuple[int, Any]:
        """Read a checkpoint into a tree of the same arrays and Python values.

        Args:
            like: The saved tree with other numbers; its arrays may be `jax.ShapeDtypeStruct`s.
                Arrays on several devices, or shapes with such a sharding, are restored there, each
                device reading its part; NumPy arrays as NumPy arrays; others onto one device.
            step: Step to restore; the newest if left out.

        Returns:
            The step, and the tree; step 0 and `like` as it is if nothing is saved and no step is
            asked for.

        Raises:
            JitneyError: The step is missing or damaged, an array or a value of `like` is not in it,
                or has another shape or dtype; `like` has a leaf that is neither an array, a Python
                value nor code; or nothing is saved yet, and `like` has shapes for arrays.
            ProcessError: Processes differ in what they restore.
        """
        steps = self.steps
        number = steps[-1] if steps else None
        if step is not None:
            number = self._number(step)
        paths, treedef = tree_flatten_with_path(like)
        leaves, values = self._parts(like)
        self._agree("restore", number, leaves, to_rows(values), numbers=False)
        if number is None:
            shapes = [name for name, leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct)]
            if shapes:
                raise JitneyError(
                    self._where,
                    f"nothing is saved yet, and {shortlist(shapes)} is a shape without numbers.",
                    "A run begins with the tree as it is given.",
                    "pass arrays as long as `steps` is empty.",
                    code="J283",
                )
            return 0, like
        if number not in steps:
            raise JitneyError(
                self._where,
                f"there is no step {number}.",
                f"Saved: {shortlist([str(each) for each in steps]) or 'none'}.",
                "ask for one of those, or leave `step` out for the newest.",
                code="J283",
            )

        # Names, shapes and Python values first, so that a tree that does not fit is refused by path
        # before orbax reads arrays.
        place = self.folder / str(number)
        if not (place / "names").is_dir():
            raise self._damage_error(place, "it has no names")
        ocp = orbax()
        with self._reading(place), self._manager() as manager:
            content = ocp.args.Composite(names=ocp.args.JsonRestore())
            described = manager.restore(number, args=content)["names"]
            saved = [(*map(str, each),) for each in described["arrays"]]
            checksums = dict(described.get("checksums", {}))
            if "values" in described:
                rows = self._rows(place, described)
            else:
                rows = self._without_values(number, values)
        saved_values = [(name, _PYTHON, "", "") for name, _, _ in rows]
        self._check(number, [*saved, *saved_values], [*leaves, *values])

        arrays = self._saved_arrays(number, place, leaves, checksums)
        restored: list[object] = []
        for i, (_, leaf) in enumerate(leaves):
            array = arrays[f"{i:05}"] if leaf.size else empty_like(leaf)
            restored.append(like_leaf(array, leaf, saved[i][3]))

        whole = _in_order([leaf for _, leaf in paths], restored, from_rows(rows))
        return number, tree_unflatten(treedef, whole)

    def _saved_arrays(
        self,
        number: int,
        place: Path,
        leaves: Leaves,
        checksums: Mapping[str, object],
    ) -> Mapping[str, Any]:
        """Read the arrays of a step, each as its leaf asks for, by their places in the tree."""
        ocp = orbax()
        arguments = {
            f"{i:05}": restore_argument(leaf) for i, (_, leaf) in enumerate(leaves) if leaf.size
        }
        with self._reading(place), self._manager() as manager:
            wanted = ocp.args.PyTreeRestore(dict.fromkeys(arguments, 0), restore_args=arguments)
            arrays = manager.restore(number, args=ocp.args.Composite(arrays=wanted))["arrays"]

        # Earlier versions saved no checksums, and dtypes of less than a byte have none.
        for i, (name, leaf) in enumerate(leaves):
            key = f"{i:05}"
            if leaf.size and checksums.get(key) not in (None, checksum(arrays[key])):
                raise self._damage_error(
                    place, f"the numbers of {name} are not those that were saved"
                )
        return arrays

    def _parts(self, tree: object) -> tuple[Leaves, Leaves]:
        """The arrays of a tree with their paths, and its Python values.

        Raises:
            JitneyError: A leaf is neither, nor code.
        """
        named = _named_leaves(tree)
        for name, leaf in named:
            if is_array(leaf) or is_value(leaf) or is_code(leaf):
                continue
            raise JitneyError(
                self._where,
                f"{name} is a {type(leaf).__name__}, which is not saved.",
                _SAVED,
                _fix(leaf),
                code="J284",
            )
        arrays = [(name, leaf) for name, leaf in named if is_array(leaf)]
        values = [(name, leaf) for name, leaf in named if is_value(leaf)]
        return arrays, values

    def _rows(self, place: Path, described: Mapping[str, Any]) -> list[Row]:
        """The Python values as they were saved.

        Raises:
            JitneyError: They are damaged.
        """
        rows: list[Row] = [(name, kind, text) for name, kind, text in described["values"]]
        if described.get("values_checksum") != checksum_of(rows):
            raise self._damage_error(place, "its numbers of Python are not those that were saved")
        return rows

    def _without_values(
        self,
        step: int,
        values: Sequence[tuple[str, object]],
    ) -> list[Row]:
        """Values of the tree, for a checkpoint of jitney 0.2, which saved arrays only."""
        if values:
            names = shortlist([name for name, _ in values])
            text = format_error(
                self._where,
                f"step {step} was saved by an earlier jitney, without {names}.",
                "Earlier checkpoints kept arrays alone; numbers and texts of Python are those of"
                " the tree that was given.",
                "set them to what they were; the next `save` keeps them.",
            )
            warnings.warn(text, DataWarning, stacklevel=users_level())
        return to_rows(values)

    def _damage_error(self, place: Path, why: object) -> JitneyError:
        return JitneyError(
            self._where,
            f"{place} is not a checkpoint of jitney's, or it is damaged: {why}.",
            "A checkpoint is used whole or not at all.",
            "give another folder, or another step, such as the one before.",
            code="J281",
        )

    @contextmanager
    def _reading(self, place: Path) -> Generator[None]:
        """Context that turns orbax's exceptions about damaged files into JitneyError. They are of
        many classes, but those of memory and devices pass.
        """
        try:
            yield
        except (OSError, ValueError, TypeError, LookupError, AttributeError, EOFError) as error:
            first = str(error).strip().partition("\n")[0]
            raise self._damage_error(place, f"{type(error).__name__}: {first[:200]}") from error

    def _number(self, step: SupportsIndex) -> int:
        """The step as orbax names its folder.

        Raises:
            JitneyError: It is not a number from 0.
        """
        try:
            number = -1 if isinstance(step, bool) else operator.index(step)
        except TypeError:
            number = -1
        if number < 0:
            raise JitneyError(
                self._where,
                f"{step!r} is not a step.",
                "Steps are counted from 0.",
                "pass an int.",
                code="J283",
            )
        return number

    def _refuse(self, leaves: Leaves) -> None:
        """Refuse arrays that have no numbers to save, by path.

        Raises:
            JitneyError: An array is a shape or traced, or is of texts or objects.
        """
        for name, leaf in leaves:
            if isinstance(leaf, (jax.ShapeDtypeStruct, Tracer)):
                what = "has no numbers: it is a shape, or is being traced"
                fix = "pass arrays, outside of jit."
            elif not (
                issubdtype(leaf.dtype, np.number)
                or issubdtype(leaf.dtype, np.bool_)
                or is_key(leaf)
            ):
                what = f"is an array of dtype {leaf.dtype}"
                fix = "take it out of the tree, or make it a static field."
            else:
                continue
            raise JitneyError(
                self._where,
                f"{name} {what}.",
                "Numbers, booleans and PRNG keys are what is saved.",
                fix,
                code="J284",
            )

    def _agree(
        self,
        what: str,
        step: int | None,
        leaves: Sequence[tuple[str, object]],
        rows: Sequence[Row],
        *,
        numbers: bool,
    ) -> None:
        """Check that all processes of the run do the same."""
        if jax.process_count() == 1:
            return
        facts = [
            ("function", "the call", f"{what} of {self.folder}"),
            ("static", "the step", str(step)),
        ]
        facts += [("array", name, " ".join(_kind(leaf))) for name, leaf in leaves]
        if numbers:
            facts += [("value", name, digest(leaf)) for name, leaf in leaves if is_local(leaf)]
            facts += [("value", name, f"{kind} {text}") for name, kind, text in rows]
        else:
            facts += [("value", name, _PYTHON) for name, _, _ in rows]
        compare(range(jax.process_count()), facts, self._where)

    def _check(
        self,
        step: int,
        saved: Sequence[Sequence[str]],
        leaves: Sequence[tuple[str, object]],
    ) -> None:
        """Check that a checkpoint has these arrays and values.

        Raises:
            JitneyError: It does not.
        """
        old = {name: (dtype, shape) for name, dtype, shape, _ in saved}
        new = {name: _kind(leaf) for name, leaf in leaves}
        wrong: list[str] = []
        for name in dict.fromkeys([*old, *new]):
            if name not in new:
                wrong.append(f"{name} is only in the checkpoint")
            elif name not in old:
                wrong.append(f"{name} is only in the tree")
        for name in new:
            if name in old and old[name] != new[name]:
                before = " ".join(old[name]).strip()
                now = " ".join(new[name]).strip()
                wrong.append(f"{name} is {before} in the checkpoint and {now} in the tree")
        if wrong or list(old) != list(new):
            raise JitneyError(
                self._where,
                f"step {step} does not fit:"
                f" {shortlist(wrong) or 'its leaves come in another order'}.",
                "A checkpoint is restored into a tree of the same arrays, with values of Python in"
                " the same places.",
                "build the model and the optimiser as they were, or take the step from before the"
                " change.",
                code="J282",
            )

    @contextmanager
    def _manager(self, *, clean: bool = False) -> Generator[Any]:
        ocp = orbax()
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self.keep,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=clean,
        )
        with ocp.CheckpointManager(self.folder, options=options) as manager:
            yield manager

    def __repr__(self) -> str:
        return f"<{self._where}: steps {', '.join(map(str, self.steps)) or 'none'}>"


def _in_order(
    like: Sequence[object],
    arrays: Iterable[object],
    values: Iterable[object],
) -> list[object]:
    """Put leaves together in the order of a tree: arrays, Python values, and the code of `like`."""
    next_array, next_value = iter(arrays), iter(values)
    whole: list[object] = []
    for leaf in like:
        if is_array(leaf):
            whole.append(next(next_array))
        elif is_value(leaf):
            whole.append(next(next_value))
        else:
            whole.append(leaf)
    return whole


def _named_leaves(tree: object) -> Leaves:
    paths, _ = tree_flatten_with_path(tree)
    return [(keystr(path) or "the tree", leaf) for path, leaf in paths]


_PYTHON = "a value of Python"
_SAVED = (
    "Arrays are saved, and Python's bool, int, float, complex, str and bytes; functions, classes"
    " and dtypes are the program's."
)


def _fix(leaf: object) -> str:
    """Advice how to save the state of an object, or how to leave it out."""
    if isinstance(leaf, np.random.Generator):
        return (
            "save `generator.bit_generator.state`, and set it to what is restored; or draw with"
            " jax.random."
        )
    if isinstance(leaf, np.random.RandomState):
        return (
            "save `state.get_state(legacy=False)`, and call `set_state` with what is restored; or"
            " draw with jax.random."
        )
    return (
        "take it out of the tree, make it a static field, or register its class as a pytree"
        " (eqx.Module)."
    )


def _kind(leaf: Any) -> tuple[str, str]:
    if is_array(leaf):
        return str(leaf.dtype), str(list(leaf.shape))
    return _PYTHON, ""
