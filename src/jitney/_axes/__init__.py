"""Analysis and evaluation of a body along its named axes.

A body is traced with symbolic sizes (`symbolic/`), its uses of each axis are proven from that jaxpr
(`uses.py`, with the table in `rules/`), and the jaxpr is evaluated on padded arrays (`padded.py`)
or in chunks (`chunks/`). `f(x) = sum(x * x)` over an axis `n`, in a bucket of 8:

    traced    b:f32[n] = mul a a;  c:f32[] = reduce_sum b
    proven    Use({"n"}, "reduced", "sum"): one use, not refused
    padded    b:f32[8] = mul a a;  c:f32[] = reduce_sum(select(iota < valid, b, -0.0))
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .callbacks import demand_no_effects as demand_no_effects
    from .callbacks import find_effect as find_effect
    from .chunks.chunked import Chunked as Chunked
    from .chunks.in_memory import run_chunked as run_chunked
    from .chunks.in_memory import run_chunked_differentiable as run_chunked_differentiable
    from .chunks.known_values import KnownValues as KnownValues
    from .chunks.known_values import StoredCarries as StoredCarries
    from .chunks.over_devices import Devices as Devices
    from .chunks.over_devices import check_order as check_order
    from .chunks.over_devices import describe_collectives as describe_collectives
    from .chunks.passes import Passes as Passes
    from .chunks.passes import bytes_per_element as bytes_per_element
    from .chunks.passes import coupling_statistic as coupling_statistic
    from .chunks.passes import number_constants as number_constants
    from .chunks.planning import plan_passes as plan_passes
    from .chunks.turns import begin_from as begin_from
    from .chunks.turns import counts_iterations as counts_iterations
    from .chunks.turns import numbers_of_iterations as numbers_of_iterations
    from .derivative import demand_no_tracers as demand_no_tracers
    from .derivative import jvp_function as jvp_function
    from .dims import evaluate as evaluate
    from .dims import is_symbolic as is_symbolic
    from .mapped_chunks import balanced as balanced
    from .mapped_chunks import computes_alone as computes_alone
    from .mapped_chunks import evaluate_element as evaluate_element
    from .mapped_chunks import joint_rules as joint_rules
    from .mapped_chunks import map_in_chunks as map_in_chunks
    from .mapped_chunks import map_sequentially as map_sequentially
    from .mapped_chunks import trace_element as trace_element
    from .padded import PaddedDerivative as PaddedDerivative
    from .padded import run_differentiable as run_differentiable
    from .padded import run_padded as run_padded
    from .refusal import ClosesOver as ClosesOver
    from .refusal import MadeOfSize as MadeOfSize
    from .refusal import Refused as Refused
    from .rule import Use as Use
    from .symbolic.scope import at_any_size as at_any_size
    from .symbolic.scope import ranges_at_hand as ranges_at_hand
    from .symbolic.symbolic_trace import SymbolicProgram as SymbolicProgram
    from .symbolic.symbolic_trace import trace as trace
    from .unified.choices import Choices as Choices
    from .unified.choices import shared_choice as shared_choice
    from .uses import demand as demand
    from .uses import uses_of as uses_of
    from .x64 import is_wide as is_wide
    from .xla_faults.partitioner_fixes import partition_safe as partition_safe
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "demand_no_effects": "callbacks",
            "find_effect": "callbacks",
            "number_constants": "chunks.passes",
            "Chunked": "chunks.chunked",
            "StoredCarries": "chunks.known_values",
            "KnownValues": "chunks.known_values",
            "run_chunked": "chunks.in_memory",
            "run_chunked_differentiable": "chunks.in_memory",
            "Devices": "chunks.over_devices",
            "check_order": "chunks.over_devices",
            "describe_collectives": "chunks.over_devices",
            "Passes": "chunks.passes",
            "bytes_per_element": "chunks.passes",
            "plan_passes": "chunks.planning",
            "counts_iterations": "chunks.turns",
            "begin_from": "chunks.turns",
            "numbers_of_iterations": "chunks.turns",
            "coupling_statistic": "chunks.passes",
            "demand_no_tracers": "derivative",
            "jvp_function": "derivative",
            "evaluate": "dims",
            "is_symbolic": "dims",
            "balanced": "mapped_chunks",
            "computes_alone": "mapped_chunks",
            "evaluate_element": "mapped_chunks",
            "joint_rules": "mapped_chunks",
            "map_in_chunks": "mapped_chunks",
            "trace_element": "mapped_chunks",
            "map_sequentially": "mapped_chunks",
            "PaddedDerivative": "padded",
            "run_differentiable": "padded",
            "run_padded": "padded",
            "ClosesOver": "refusal",
            "MadeOfSize": "refusal",
            "Refused": "refusal",
            "Use": "rule",
            "partition_safe": "xla_faults.partitioner_fixes",
            "demand": "uses",
            "uses_of": "uses",
            "is_wide": "x64",
            "Choices": "unified.choices",
            "SymbolicProgram": "symbolic.symbolic_trace",
            "at_any_size": "symbolic.scope",
            "shared_choice": "unified.choices",
            "ranges_at_hand": "symbolic.scope",
            "trace": "symbolic.symbolic_trace",
        },
    )
