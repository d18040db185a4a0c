"""The model of time of `jitney.simulation.simulate`, against its formulas by hand, and work in the text of a
program.
"""

import pytest

from jitney._jax.xla.hlo_work import ProgramCost
from jitney._simulate.roofline import Links, links, seconds_of
from jitney.simulation import Device

DEVICE = Device(
    "toy",
    1,
    1.0,
    {"f32": 1.0},
    1.0,
    group=8,
    link=400.0,
    network=50.0,
    link_latency=1.0,
    network_latency=2.0,
)


@pytest.mark.parametrize(
    ("along", "expected"),
    [
        (("model",), Links(8, network=False, bandwidth=400.0, latency=1.0)),  # fills a node
        # one member in each node
        (("data",), Links(256, network=True, bandwidth=50.0, latency=2.0)),
        # all ports of a node
        (("data", "model"), Links(2048, network=True, bandwidth=400.0, latency=2.0)),
    ],
)
def test_the_last_axis_lies_within_a_node(along, expected):
    """Eight devices in each."""
    assert links({"data": 256, "model": 8}, along, DEVICE) == expected


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("all-reduce", 800, 2 * 7 / 8 * 8 + 6),
        ("all-gather", 800, 7 / 8 * 8 + 3),
        ("reduce-scatter", 100, 7 / 8 * 8 + 3),
        ("all-to-all", 800, 7 / 8 * 8 + 3),
        ("collective-permute", 800, 8 + 1),
    ],
)
def test_a_collective_takes_its_bytes_and_its_messages(kind, size, expected):
    """Of eight devices at 100 bytes/s and a second a message."""
    assert seconds_of(
        kind, size, Links(8, network=False, bandwidth=100.0, latency=1.0)
    ) == pytest.approx(expected)


PROGRAM = """HloModule jit_f, is_scheduled=true

%fused (a: f32[10,4], i: s32[]) -> f32[4] {
  %a = f32[10,4]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %cut = f32[1,4]{1,0} dynamic-slice(%a, %i, %zero), dynamic_slice_sizes={1,4}
  ROOT %seen = f32[4]{0} bitcast(%cut)
}

%body (t: (s32[], f32[4], f32[10,4])) -> (s32[], f32[4], f32[10,4]) {
  %t = (s32[], f32[4]{0}, f32[10,4]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%t), index=0
  %x = f32[4]{0} get-tuple-element(%t), index=1
  %all = f32[10,4]{1,0} get-tuple-element(%t), index=2
  %row = f32[4]{0} fusion(%all, %n), kind=kLoop, calls=%fused
  %sum = f32[4]{0} add(%x, %row)
  ROOT %next = (s32[], f32[4]{0}, f32[10,4]{1,0}) tuple(%n, %sum, %all)
}

%condition (s: (s32[], f32[4], f32[10,4])) -> pred[] {
  %s = (s32[], f32[4]{0}, f32[10,4]{1,0}) parameter(0)
  ROOT %on = pred[] constant(true)
}

ENTRY %main (p: (s32[], f32[4], f32[10,4]), l: f32[3,5], r: f32[5,7]) -> f32[3,7] {
  %p = (s32[], f32[4]{0}, f32[10,4]{1,0}) parameter(0)
  %l = f32[3,5]{1,0} parameter(1)
  %r = f32[5,7]{1,0} parameter(2)
  %loop = (s32[], f32[4]{0}, f32[10,4]{1,0}) while(%p), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  ROOT %dot = f32[3,7]{1,0} dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_work_of_a_program():
    """Products, other operations, and bytes: of an array that each turn cuts a row from, that
    row.
    """
    work = ProgramCost(PROGRAM)
    assert (work.products, work.other_flops, work.endless) == (2 * 3 * 5 * 7, 10 * 4, 0)
    row = 16 + 4 + 16  # the row, its index, and what is written
    assert work.bytes == 10 * (row + 3 * 16) + 4 * (15 + 35 + 21)


def test_a_loop_of_unknown_length_is_told():
    """It counts once."""
    work = ProgramCost(PROGRAM.replace(', backend_config={"known_trip_count":{"n":"10"}}', ""))
    assert (work.other_flops, work.endless) == (4, 1)
