"""What a body does along its named axes: proven on a program with symbolic sizes, and carried out
on padded ones.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .callbacks import demand_no_effects as demand_no_effects
    from .chunks.chunked import Chunked as Chunked
    from .chunks.chunked import Kept as Kept
    from .chunks.chunked import KnownValues as KnownValues
    from .chunks.chunked import run_chunked as run_chunked
    from .chunks.chunked import run_chunked_differentiable as run_chunked_differentiable
    from .chunks.over_devices import Devices as Devices
    from .chunks.over_devices import check_order as check_order
    from .chunks.over_devices import told as told
    from .chunks.passes import Passes as Passes
    from .chunks.passes import bytes_per_element as bytes_per_element
    from .chunks.planning import plan_passes as plan_passes
    from .chunks.waiting import waiting as waiting
    from .derivative import demand_no_tracers as demand_no_tracers
    from .derivative import pushed_forward as pushed_forward
    from .dims import evaluate as evaluate
    from .dims import is_symbolic as is_symbolic
    from .lanes import one_by_one as one_by_one
    from .padded import run_differentiable as run_differentiable
    from .padded import run_padded as run_padded
    from .refusal import ClosesOver as ClosesOver
    from .refusal import MadeOfSize as MadeOfSize
    from .refusal import Refused as Refused
    from .rule import Use as Use
    from .spreading import spread as spread
    from .uses import demand as demand
    from .uses import uses_of as uses_of
    from .witness.scope import at_any_size as at_any_size
    from .witness.scope import ranges_at_hand as ranges_at_hand
    from .witness.symbolic_trace import Choices as Choices
    from .witness.symbolic_trace import SymbolicProgram as SymbolicProgram
    from .witness.symbolic_trace import chosen as chosen
    from .witness.symbolic_trace import trace as trace
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "demand_no_effects": "callbacks",
            "Chunked": "chunks.chunked",
            "Kept": "chunks.chunked",
            "KnownValues": "chunks.chunked",
            "run_chunked": "chunks.chunked",
            "run_chunked_differentiable": "chunks.chunked",
            "Devices": "chunks.over_devices",
            "check_order": "chunks.over_devices",
            "told": "chunks.over_devices",
            "Passes": "chunks.passes",
            "bytes_per_element": "chunks.passes",
            "plan_passes": "chunks.planning",
            "waiting": "chunks.waiting",
            "demand_no_tracers": "derivative",
            "pushed_forward": "derivative",
            "evaluate": "dims",
            "is_symbolic": "dims",
            "one_by_one": "lanes",
            "run_differentiable": "padded",
            "run_padded": "padded",
            "ClosesOver": "refusal",
            "MadeOfSize": "refusal",
            "Refused": "refusal",
            "Use": "rule",
            "spread": "spreading",
            "demand": "uses",
            "uses_of": "uses",
            "Choices": "witness.symbolic_trace",
            "SymbolicProgram": "witness.symbolic_trace",
            "at_any_size": "witness.scope",
            "chosen": "witness.symbolic_trace",
            "ranges_at_hand": "witness.scope",
            "trace": "witness.symbolic_trace",
        },
    )
