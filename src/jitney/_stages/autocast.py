"""Stage of `precision="bf16"` and `"fp16"`: compute matrix products and convolutions in a low type,
with float32 accumulation, and everything else as it is.

    dot_general a b   ->   dot_general (bf16 a) (bf16 b), preferred_element_type=float32

It takes a dict of these policies by module path, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import jax

from .. import _precision
from .._errors import OptionError, Where, shortlist
from .._jax.debug_names import named_like
from .._jax.typed import Array
from .._precision import LOW, Policy, is_line, tokens
from .._signature.hints import ArrayHint
from .._signature.options import policy_of, tolerance_of
from .._view.result import Outcome
from .._view.view import Leaf, View
from .stage import Fn, Request, Skip, Stage

_UNITS = {
    "bf16": {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"},
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
# Compute capability of the first NVIDIA GPUs with bfloat16.
_BF16_FROM = 8.0


@dataclass(frozen=True)
class Autocast(Stage):
    """Body's jaxpr, evaluated with casts around its products."""

    # None until the policy is chosen, which takes the values of a call.
    policy: Policy | None
    labels: tuple[_precision.Label, ...]
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="precision", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        """Decide for a policy of products.

        Raises:
            OptionError: An exception names a path that no array has.
        """

        # A policy that `precision="auto:..."` has chosen, or one that the user has written. Before
        # the first call `auto` has chosen none.
        policy, chosen = request.chosen or (policy_of(request.options.precision), "")
        tolerance = tolerance_of(request.options.precision)
        if policy is None and tolerance is not None:
            return cls(
                None,
                labels_of(view),
                request.where,
                f"to hold {tolerance:g}, chosen by the values of the first call: not called yet",
            )
        if policy is None:
            return Skip("precision", "no policy of products given")

        missing = policy.unmatched_path([leaf.path for leaf in view.leaves])
        if missing is not None:
            name, near = missing
            raise OptionError(
                request.where,
                f"`precision` names {name!r}, which is in no argument's path.",
                "A name fits where its parts stand in the path of an array, in this order:"
                " 'head' fits model.head.weight.",
                (
                    f"near to it are {', '.join(map(repr, near))}; plans print all paths."
                    if near
                    else "pass arrays to it."
                ),
                code="J202",
            )

        what = "every product in float32"
        if policy.types:
            low = " and ".join(str(LOW[type_]) for type_ in policy.types)
            what = f"products in {low}, accumulated in float32, the rest as it is"
        exceptions = shortlist([f"{name} in {type_}" for name, type_ in policy.exceptions])
        slow = [emulation_warning(type_) or "" for type_ in policy.types]
        why = "; ".join(filter(None, [what, exceptions, chosen, *slow]))
        return cls(policy, labels_of(view), request.where, why)

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        policy = self.policy
        if policy is None:
            raise OptionError(
                self.where,
                "`precision` is to be chosen by the error on the arguments, and they have no values"
                " here.",
                "It is chosen when a new call key comes with values: not ahead of time by sizes,"
                " nor for `frontier` and streams.",
                "write the policy that `jitney.analysis.precision_report` gives; what is asked of"
                " one call is known once it has been made with arrays.",
                code="J201",
            )

        def cast(*arrays: Array) -> Sequence[Array]:
            out, sites = _precision.autocast(body_of(fn, arrays), arrays, self.labels, policy)
            lines = [site.source.partition(" ")[0] for site in sites]
            # Lines are known only from the trace, so exceptions that name one are checked here
            # rather than in `plan`.
            for name, _ in policy.exceptions:
                if is_line(name) and name not in lines:
                    fix = (
                        f"the lines are {', '.join(dict.fromkeys(lines))}."
                        if lines
                        else "leave it out: no product is computed here."
                    )
                    raise OptionError(
                        self.where,
                        f"`precision` names the line {name}, where no product is computed.",
                        "A line is that of a matrix product or a convolution in the code that was"
                        " traced.",
                        fix,
                        code="J202",
                    )
            return out

        return cast


def labels_of(view: View) -> tuple[_precision.Label, ...]:
    """Label each array of a call with its path and whether its dtype is exact."""
    return tuple(
        _precision.Label(tokens(leaf.path), leaf=True, exact=_is_exact(leaf))
        for leaf in view.leaves
    )


def body_of(fn: Callable[..., Sequence[object]], arrays: Sequence[object]) -> Any:
    """Trace a function of flat arrays into a closed jaxpr, even under `jax.disable_jit`."""

    def body(*arrays: object) -> Sequence[object]:
        return fn(*arrays)

    with jax.disable_jit(False):  # noqa: FBT003
        return jax.make_jaxpr(named_like(body, fn))(*arrays)


def emulation_warning(low: str) -> str | None:
    """Warning for the plan if the device emulates a low type; None if it has units for it."""
    device = jax.local_devices()[0]
    if not _precision.has_kernels(LOW[low]):
        return (
            f"on CPUs factors are rounded to {LOW[low]} and multiplied in float32: the same"
            " numbers, and no faster than float32"
        )

    what = (
        f"{LOW[low]}, so it will be slower here (python -m tests.perf.precision in the repository"
        " measures how much)"
    )

    if device.platform == "cpu":
        flags = _cpu_flags()
        if flags & _UNITS[low]:
            return None
        return f"this CPU emulates {what}" if flags else f"most CPUs emulate {what}"

    capability = str(getattr(device, "compute_capability", ""))
    if low == "bf16" and capability.replace(".", "").isdigit() and float(capability) < _BF16_FROM:
        return f"{device.device_kind} emulates {what}"
    return None


@cache
def _cpu_flags() -> frozenset[str]:
    """CPU flags that Linux reports; empty on other systems."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    for line in lines:
        if line.startswith(("flags", "Features")):
            _, _, flags = line.partition(":")
            return frozenset(flags.split())
    return frozenset()


def _is_exact(leaf: Leaf) -> bool:
    return isinstance(leaf.hint, ArrayHint) and leaf.hint.exact_dtype is not None
