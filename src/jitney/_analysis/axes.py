"""`jitney.analysis.axes`: a report on each named axis of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .._errors import ContractError
from .._interface.derivatives.derivative import Derivative, program_of_call
from .._interface.optimize import optimize
from .._owners import public
from .._report.axis_facts import Axes, facts_of


@public
def axes(
    program: Callable[..., object] | Derivative[..., object],
    /,
    *examples: object,
    sizes: Mapping[str, int] | None = None,
    **keywords: object,
) -> Axes:
    """Report the use of each named axis of a function's signature, proven on its program with
    symbolic sizes.

    Args:
        program: A function, under `@optimize` or plain; or a derivative of one, such as `f.grad`.
        examples: As for `Program.compile`.
        sizes: As for `Program.compile`.
        keywords: As for `Program.compile`; for a derivative also `wrt`.

    Returns:
        Axis name -> facts, for each axis that has a name of its own and a size above 1.

    Raises:
        ContractError: The examples do not fit the contract, or no axis has a name.
    """
    if not hasattr(program, "abstract") and callable(program):
        program = optimize(program)
    called = program_of_call("jitney.analysis.axes()", program, keywords)
    # A warning about a mapped axis would repeat the facts.
    entry, arrays = called.abstract(examples, keywords, sizes, warn=False)
    with entry.numbers():
        facts = facts_of(entry, arrays)
    if not facts:
        raise ContractError(
            entry.core.where,
            "no axis of an array argument has a name and a size above 1.",
            "Facts are about the axes that annotations name.",
            'annotate the arrays (x: Float[Array, "n"]).',
            code="J216",
        )
    return Axes(facts)
