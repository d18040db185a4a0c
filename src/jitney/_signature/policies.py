"""Policies of `jax.checkpoint_policies`: what a backward pass keeps, and does not compute again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import cast

import jax

from .._errors import OptionError, Where
from .._extent import AUTO

POLICIES = (
    "everything_saveable",
    "nothing_saveable",
    "dots_saveable",
    "checkpoint_dots",
    "dots_with_no_batch_dims_saveable",
    "checkpoint_dots_with_no_batch_dims",
)
"""Policies that a name alone chooses."""


@dataclass(frozen=True)
class RematPolicy:
    """A policy without a name of its own: a factory made it, or it is the caller's function.

    Args:
        fn: Takes an operation, with its arguments and parameters, and says whether what it gives is
            kept.
    """

    fn: Callable[..., bool]

    def __repr__(self) -> str:
        # Closures are shown by the name of the factory.
        name = getattr(self.fn, "__qualname__", None)
        return repr(self.fn) if name is None else name.partition(".<locals>")[0]


def policy_function(policy: str | RematPolicy) -> Callable[..., bool]:
    """Return a policy as `jax.checkpoint` takes it."""
    if isinstance(policy, RematPolicy):
        return policy.fn
    return getattr(jax.checkpoint_policies, policy)


def read_policy(where: Where | str, value: object) -> str | RematPolicy | None:
    """Return the option `remat`: the name of a policy, "auto", a policy, or None.

    Raises:
        OptionError: It is none of these.
    """
    if value is None or value is False:
        return None
    if value is True:
        return "nothing_saveable"
    if isinstance(value, str) and (value == AUTO or value in POLICIES):
        return value
    known = vars(jax.checkpoint_policies)
    for name, policy in known.items():
        if value is policy and name in POLICIES:
            return name
        if value is policy or (isinstance(value, str) and value == name):
            raise OptionError(
                where,
                f"remat={name} is no policy, but makes one.",
                "A factory of `jax.checkpoint_policies` returns a policy of its arguments.",
                f'call it: remat=jax.checkpoint_policies.{name}("name").',
            )
    if callable(value) and isinstance(value, Hashable):
        return RematPolicy(cast("Callable[..., bool]", value))
    alone = " that a name alone can choose" if isinstance(value, str) else ""
    raise OptionError(
        where,
        f"remat={value!r} is not a policy{alone}.",
        f'`remat` takes True, "auto", one of {", ".join(POLICIES)} from'
        " `jax.checkpoint_policies`, or what a factory there returns.",
        "choose one of these, or wrap the part in question in `jax.checkpoint` yourself.",
    )
