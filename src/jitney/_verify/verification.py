"""The `verify` option: each new program is also run plainly, and the results are compared.

It wraps the runner of a body, and only where it is requested: a function without `verify` does not
know of it. A program is verified if jitney padded, chunked, sharded, cast, rematerialised or
coloured anything in it, or in the programs that its body calls. A program that jitney did not
change is traced plainly, to see that, and not run twice. A call of a new size in a known bucket is
verified anew, since a fault of a bucket shows at some sizes only: under `verify` each size costs a
plain compile, as it does without jitney.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from .._body.body import CallPlanner
from .._body.placed_calls import PlacedCalls
from .._body.plain import PlainRun, ProgramChange, changes_of, plain_run, plainly
from .._diagnosis.counters.counters import Counters
from .._diagnosis.counters.listener import LISTENER, Owner
from .._errors import VerificationWarning, format_error
from .._jax.equinox_checks import own_jit
from .._jax.trees import tree_flatten
from .._jax.typed import Array
from .._jax.xla.memory import counted_bytes, free_bytes, text
from .._owners import users_level
from .._signature.options import Options
from .._view.layout import MAX_ENTRIES, aval_parts, is_nested_trace
from .._view.result import unmix
from .difference import Allowed, Difference, compare_results, tree_of
from .rounding import elementwise, noisy, platform_of, rounded_products

SEEDS = 4


def tells(effects: Iterable[object]) -> str | None:
    """Return why a program with effects is not run twice; None without effects."""
    kinds = sorted({type(effect).__name__ for effect in effects})
    return f"it has effects ({', '.join(kinds)}), which would happen twice" if kinds else None


class PlainProgram:
    """Plain program of a body for arrays of one set of shapes, traced and not compiled yet."""

    def __init__(self, body: CallPlanner, arrays: Sequence[object]):
        self.body = body

        def written(*arrays: object) -> object:
            return body.plainly(*arrays)

        with plainly() as stripped, body.numbers(), jax.disable_jit(False):  # noqa: FBT003
            jitted = own_jit()(body.core.with_user_names(written, body.paths))
            self.traced: jax.stages.Traced = jitted.trace(*arrays)
        self.stripped: PlainRun = stripped
        self._compiled: jax.stages.Compiled | None = None

    @property
    def effects(self) -> str | None:
        return tells(self.traced.jaxpr.effects)

    def misfit(self) -> str | None:
        """Compile the program, and return why it is not run if it takes more memory than is
        free.
        """
        with self.body.numbers():
            self._compiled = self.traced.lower().compile()
        needed, free = counted_bytes(self._compiled), free_bytes()
        if needed <= free:
            return None
        return f"plainly it takes {text(needed)}, and {text(free)} are free"

    def __call__(self, arrays: Sequence[object]) -> object:
        if self._compiled is None:
            raise AssertionError("`misfit` compiles the program")
        with self.body.numbers():
            try:
                return tree_of(unmix(self._compiled(*arrays)))
            except Exception as error:
                error.add_note(
                    f"{self.body.core.where} raises this when `verify` runs it plainly, and did not"
                    " under its options."
                )
                raise

    def perturbed_results(
        self,
        arrays: Sequence[Array],
        allowed: Allowed,
    ) -> Iterator[object]:
        """Yield results with other last bits, or with the rounding of low dtypes."""
        with self.body.numbers():
            run = jax.jit(noisy(self.traced.jaxpr, allowed.unit(), allowed.unit("-all")))
            for seed in range(SEEDS):
                key = jax.random.key(seed)
                leaves = tree_flatten(list(arrays))[0]
                yield self._tree(run(key, *leaves))

    def step_by_step(self, arrays: Sequence[Array]) -> object:
        """Return the result with each operation compiled on its own."""
        with self.body.numbers():
            run = jax_core.jaxpr_as_fun(self.traced.jaxpr)
            leaves = tree_flatten(list(arrays))[0]
            return self._tree(run(*leaves))

    def _tree(self, flat: Sequence[object]) -> object:
        structure = jax.tree.structure(self.traced.out_info)
        return tree_of(unmix(jax.tree.unflatten(structure, flat)))


class VerifiedRunner(PlacedCalls[Array]):
    """Runs the calls of a body, and verifies each new one.

    Args:
        body: The body.
        run: How its calls run.
        pads: Whether calls of these shapes are padded.
        unlooked: Warns that a call cannot be verified, since an outer transform traces it.
    """

    asks_jit = True
    asks_traces = False

    def __init__(
        self,
        body: CallPlanner,
        run: Callable[..., object],
        pads: Callable[[Sequence[Array]], bool] | None,
        unlooked: Callable[[], None],
    ):
        super().__init__()
        self.body = body
        self.run = run
        self.pads = pads
        self.unlooked = unlooked

    def run_without_jit(self, arrays: Sequence[Array]) -> object:
        """Run a call with jit off, unverified: no program is made."""
        return self.run(*arrays)

    def run_within(self, arrays: Sequence[Array]) -> object:
        """Run a call that an outer transform traces, unverified."""
        self.unlooked()
        return self.run(*arrays)

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        """Run a call, and verify it if it is new."""
        # Concrete arguments, in the body of another function that is being run plainly.
        if plain_run() is not None:
            return self.body.plainly(*arrays)

        # A call that was verified before runs as usual.
        key = self._key(arrays)
        if key in self.body.verified:
            return self.run(*arrays)

        # Copies of donated arrays, for the plain run afterwards.
        donated = self.body.request.donated
        given = [_copy_array(x) if i in donated else x for i, x in enumerate(arrays)]
        out = self.run(*arrays)
        # An outer trace may call with concrete arrays.
        if is_nested_trace(jax.tree.leaves(out)):
            self.unlooked()
            return out

        verified = self.body.verified
        if len(verified) >= MAX_ENTRIES:
            verified.clear()
        verification = Verification(
            self.body,
            self._fresh,
            self._changes(given),
        )
        verified[key] = verification.verify(given, unmix(out))
        return out

    def _fresh(self, arrays: Sequence[Array]) -> object:
        return unmix(self.run(*map(_copy_array, arrays)))

    def _key(self, arrays: Sequence[Array]) -> Hashable:
        settings: Any = jax.config
        where = self.body.mesh_key()
        shardings = tuple(getattr(x, "sharding", None) for x in arrays)
        return (
            *map(aval_parts, arrays),
            shardings,
            where,
            settings.jax_enable_x64,
            settings.jax_default_matmul_precision,
        )

    def _changes(self, arrays: Sequence[Array]) -> tuple[ProgramChange, ...]:
        core, options = self.body.core, self.body.options
        if self.pads is not None and not self.pads(arrays):
            options = options.without("pad")
        return changes_of(options, core.fn())


class Verification:
    """The verification of one call.

    Args:
        body: The program.
        again: Runs it once more, on other arrays, without verifying.
        changes: The changes that jitney made to it.
        options: Options of an equivalent call; by default the program's own.
    """

    def __init__(
        self,
        body: CallPlanner,
        again: Callable[[Sequence[Array]], object],
        changes: Sequence[ProgramChange],
        options: Options | None = None,
    ):
        self.body = body
        self.again = again
        self.changes = tuple(changes)
        self.options = options or body.options

    def of(self, fn: Callable[..., object]) -> Verification:
        """Return the verification of another function of the same arguments."""
        core = self.body.core.of(fn, self.options.without("verify"))
        probe = self.body.of(core)

        def again(arrays: Sequence[Array]) -> object:
            return unmix(probe.run(*map(_copy_array, arrays)))

        return Verification(
            probe,
            again,
            self.changes,
        )

    def verify(self, arrays: Sequence[Array], ours: object) -> str:
        """Compare a result with that of the plain function, and return the outcome in words.

        Raises:
            VerificationError: They differ.
        """
        return _verify_arrays(
            self,
            arrays,
            ours,
            Counters("verify"),
        )

    def difference(
        self,
        arrays: Sequence[Array],
        ours: object,
    ) -> tuple[Difference | None, str]:
        """Return the difference between a result and the plain one, if any, and the outcome in
        words.
        """
        gathered = [_on_one_device(x) for x in arrays]
        arrays = [x for x in gathered if x is not None]
        if len(arrays) < len(gathered):
            return None, "left out: its arrays lie on several processes"

        # Reasons to leave the call out.
        plain = PlainProgram(self.body, arrays)
        self.changes = tuple(dict.fromkeys((*self.changes, *plain.stripped.changes)))
        if not self.changes:
            return None, "left out: nothing was changed"
        reason = plain.effects or plain.misfit()
        if reason is not None:
            return None, f"left out: {reason}"

        # Run plainly, and compare.
        sizes = [int(np.size(x)) for x in arrays if hasattr(x, "shape")]
        alone = tuple(elementwise(plain.traced.jaxpr))
        device = rounded_products(plain.traced.jaxpr, platform_of(arrays))
        allowed = Allowed(
            self.changes,
            max(sizes, default=1),
            alone,
            device,
        )
        expected = plain(arrays)
        got = tree_of(ours)
        difference = compare_results(
            got,
            expected,
            allowed,
            lambda: plain.perturbed_results(arrays, allowed),
        )
        if difference is None or difference.at is None:
            return difference, "verified"
        return self._not_xlas(
            difference,
            plain,
            arrays,
            got,
            expected,
            allowed,
        )

    def _not_xlas(
        self,
        difference: Difference,
        plain: PlainProgram,
        arrays: Sequence[Array],
        got: object,
        expected: object,
        allowed: Allowed,
    ) -> tuple[Difference | None, str]:
        """Return the difference, unless the plain program is at fault: an error of XLA, which its
        operations one by one do not show.
        """
        # Judge by the operations of the plain program, each compiled on its own: is it plain
        # `jax.jit` that is off, and does our result agree with them?
        slowly = plain.step_by_step(arrays)
        own = compare_results(
            expected,
            slowly,
            allowed,
        )
        if own is None:
            return difference, "differs"
        ours = compare_results(
            got,
            slowly,
            allowed,
            lambda: plain.perturbed_results(arrays, allowed),
        )
        if ours is not None:
            reason = "plain `jax.jit` differs from its own operations one by one too"
            return difference, f"differs; {reason}: {own.text}"

        warnings.warn(
            format_error(
                self.body.core.where,
                f"plain `jax.jit` gives {difference.plain!r} where its operations one by one, and"
                f" this program, give {difference.ours!r}.",
                "`verify` compares with plain `jax.jit`, which the compiler XLA has got wrong here,"
                " not jitney.",
                "set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= if this is a CPU, and report"
                " it to XLA.",
            ),
            VerificationWarning,
            stacklevel=users_level(),
        )
        return None, "verified, by the operations of the plain function one by one"


def _verify_arrays(
    verification: Verification,
    arrays: Sequence[Array],
    ours: object,
    counters: Counters,
) -> str:
    """Carry out `Verification.verify`; `counters` own the programs that are compiled below, which
    do not count for the verified program.
    """
    # Imported on a failure only.
    from .reproduce import failure

    difference, outcome = verification.difference(arrays, ours)
    if difference is None:
        verification.body.core.counters.verified += outcome.startswith("verified")
        return outcome
    raise failure(verification, arrays, difference, outcome)


LISTENER.attribute_to(_verify_arrays, Owner(lambda names: names["counters"]))


def _copy_array(array: Array) -> Array:
    return array.copy() if isinstance(array, jax.Array) else array


def _on_one_device(array: Array) -> Array | None:
    """Return an array as a plain program takes it; None if a part of it is in another process."""
    if not isinstance(array, jax.Array) or len(array.sharding.device_set) == 1:
        return array
    if not array.is_fully_addressable:
        return None
    if array.dtype.kind not in "biufcV":
        sharding: Any = array.sharding
        return jax.device_put(array, sharding.mesh.devices.flat[0])
    return jax.numpy.asarray(np.asarray(array))


def forecast(body: CallPlanner, arrays: Sequence[Array]) -> tuple[bool, str]:
    """Return whether a call with such arrays will be verified, and why, for its plan."""
    plain = PlainProgram(body, arrays)
    own = changes_of(body.options, body.core.fn())
    changes = dict.fromkeys((*own, *plain.stripped.changes))
    if plain.effects is not None:
        return False, f"left out: {plain.effects}"
    if not changes:
        return False, "nothing is changed that could be compared"
    listed = ", ".join(map(str, changes))
    return True, f"each new program and size is also run as plain `jax.jit`, and compared: {listed}"
