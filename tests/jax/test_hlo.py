"""Reading collectives from the text of a compiled program, in each form that XLA writes."""

import pytest

from jitney._jax.xla.hlo import collectives

pytestmark = pytest.mark.real_xla

MESH = {"data": 4, "model": 2}
ROW = (
    "  %x.1 = f32[2,3]{{1,0}} all-reduce(%y), channel_id=1, {groups}, to_apply=%add,"
    ' metadata={{op_name="jit(f)/sum"}}'
)


@pytest.mark.parametrize(
    ("groups", "along"),
    [
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", ("data",)),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_2'}", ("model",)),
        ("replica_groups=[4,2]<=[8]", ("model",)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", ("data",)),
        ("replica_groups={{0,2,4,6},{1,3,5,7}}", ("data",)),
        ("replica_groups={{0,1,2,3,4,5,6,7}}", ("data", "model")),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("model",)),
    ],
)
def test_groups_of_devices_are_axes_of_the_mesh(groups, along):
    """However they are written."""
    (found,) = collectives(ROW.format(groups=groups), MESH)
    assert (found.kind, found.bytes, found.along, found.line) == (
        "all-reduce",
        24,
        along,
        "jit(f)/sum",
    )


def test_pairs_of_devices():
    """A shift along one axis."""
    row = (
        "  %p = bf16[4]{0} collective-permute-start(%y),"
        " source_target_pairs={{0,2},{2,4},{4,6},{6,0}}"
    )
    (found,) = collectives(row, MESH)
    assert (found.kind, found.bytes, found.along) == ("collective-permute", 8, ("data",))


def test_tuples_count_all_their_parts():
    """One collective of several arrays."""
    row = "  %t = (f32[2]{0}, pred[4]{0}) all-to-all(%a, %b), replica_groups=[4,2]<=[8]"
    assert collectives(row, MESH)[0].bytes == 12


def test_body_and_condition_of_a_loop_run_once_a_turn():
    """And what they call; nothing else."""
    row = ROW.format(groups="replica_groups=[4,2]<=[8]")
    names = ("%called", "%body", "%condition", "ENTRY %main")
    rows = {name: [f"{name} (p: f32[2]) -> f32[2] {{", row, "}"] for name in names}
    rows["%body"].insert(1, "  %c = f32[2]{0} call(%p), to_apply=%called")
    rows["ENTRY %main"].insert(1, "  %w = f32[2]{0} while(%p), condition=%condition, body=%body")
    found = collectives("\n".join(line for name in names for line in rows[name]), MESH)
    assert [each.in_loop for each in found] == [True, True, True, False]


def test_other_operations_are_none():
    """Not even one that reads a collective's result."""
    assert collectives("  %g = f32[2]{0} get-tuple-element(%all-to-all.2), index=0", MESH) == []
