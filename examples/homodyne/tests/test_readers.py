"""Each layout, made small after its public description, and what is missing in it."""

import importlib
import sys

import numpy as np
import pytest

from examples.homodyne import __main__, _writers
from examples.homodyne._prepare import prepare
from examples.homodyne._select import Choice
from examples.homodyne.readers import LAYOUTS, ReadError, opened

FRAMES, ANGLES, Q = 12, 3, 0.0054
NAMES = {"dynamix": "s_event_trc.npz", "pyxpcs": "s_2times_q_1.edf", "npz": "s.npz"}
RINGS = ("esrf", "dynamix", "pyxpcs")  # which have no angles


@pytest.fixture
def h5py():
    return importlib.import_module("h5py")


def truth(seed=0):
    """Symmetric maps, their angles, and the pairs in the order of the files."""
    rng = np.random.default_rng(seed)
    maps = rng.uniform(1.0, 1.3, (ANGLES, FRAMES, FRAMES)).astype(np.float32)
    maps = (maps + maps.transpose(0, 2, 1)) / 2
    maps[:, range(FRAMES), range(FRAMES)] = 1.9
    return maps, np.array([-60.0, 0.0, 60.0])


def written(folder, layout, maps=None):
    path = folder / NAMES.get(layout, "s.hdf")
    given, phi = truth()
    _writers.WRITERS[layout](path, given if maps is None else maps, phi, Q)
    return path


def choice(path, layout="auto", **others):
    phi = {"esrf": (-60.0, 0.0, 60.0), "dynamix": (-60.0,), "pyxpcs": (-60.0,)}.get(layout)
    return Choice(path, layout="auto", phi=phi, **others)


@pytest.mark.core("aps-8idi")
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_layout_gives_its_correlations(tmp_path, layout):
    """At all pairs of different frames, with q, angles and times, found by what is in the file."""
    maps, phi = truth()
    data = prepare(choice(written(tmp_path, layout), layout), tmp_path / "data")
    assert data.layout == layout
    assert data.q == pytest.approx(Q)
    count = 1 if layout in ("dynamix", "pyxpcs") else ANGLES
    np.testing.assert_allclose(data.phi, phi[:count])
    t1, t2, measured = (np.asarray(data.mapped(name)) for name in ("t1", "t2", "measured"))
    i, j = (np.rint(t / 0.1).astype(int) - 1 for t in (t1, t2))
    assert np.all(i < j)
    assert t1.dtype == np.float64
    tolerance = 1e-4 if layout == "pyxpcs" else 1e-7  # 16 bits
    np.testing.assert_allclose(measured, maps[:count, i, j], atol=tolerance)
    lost = layout == "pyxpcs"  # of which the smallest is stored as 0
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == data.pairs == 66 - lost


REMOVED = {
    "aps-8idi": [
        "xpcs/twotime/correlation_map",
        "xpcs/twotime/processed_bins",
        "xpcs/qmap/dynamic_v_list_dim0",
        "xpcs/qmap/dynamic_v_list_dim1",
    ],
    "aps-8idi-before": ["exchange/C2T_all", "xpcs/dqlist"],
    "nxxpcs": ["entry/instrument/masks/dynamic_q_list"],
    "esrf": [
        "entry_0000/correlations/full/twotime/ttcf",
        "entry_0000/correlations/full/twotime/age",
        "entry_0000/correlations/full/twotime/lag",
        "entry_0000/correlations/full/parameters/q",
    ],
}
CASES = [(layout, path) for layout, paths in REMOVED.items() for path in paths]


@pytest.mark.core("aps-8idi-xpcs/qmap/dynamic_v_list_dim1")
@pytest.mark.parametrize(("layout", "missing"), CASES, ids=lambda each: each)
def test_what_is_missing_is_named_by_its_path(tmp_path, h5py, layout, missing):
    """And what is in the group above it."""
    path = written(tmp_path, layout)
    with h5py.File(path, "a") as file:
        del file[missing]
    with pytest.raises(ReadError, match=f"s.hdf has no /{missing}") as refused:
        prepare(choice(path, layout), tmp_path / "data")
    assert f"The layout '{layout}' keeps there" in str(refused.value)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("layout", "missing", "says"),
    [
        ("aps-8idi", "entry/instrument/detector_1/frame_time", "frame_time = "),
        ("aps-8idi-before", "measurement/instrument/detector/exposure_period", "frame_time = "),
        ("aps-8idi-before", "xpcs/dphilist", "/xpcs/dphilist"),
        ("nxxpcs", "entry/instrument/masks/dynamic_phi_list", "masks/dynamic_phi_list"),
    ],
)
def test_what_a_configuration_can_say_is_asked_for(tmp_path, h5py, layout, missing, says):
    """Where the file does not have it."""
    path = written(tmp_path, layout)
    with h5py.File(path, "a") as file:
        del file[missing]
    with pytest.raises(ReadError, match=r"\[data\]") as refused:
        prepare(choice(path, layout), tmp_path / "data")
    assert says in str(refused.value)
    given = {"frame_time": 0.1} if "time" in says else {"phi": (-60.0, 0.0, 60.0)}
    assert prepare(Choice(path, **given), tmp_path / "data").angles == ANGLES


@pytest.mark.rest
def test_bins_go_through_the_index_of_the_map(tmp_path, h5py):
    """A grid with holes: a bin, counted from 1, is looked up, and is not a place in the grid."""
    path = written(tmp_path, "aps-8idi")
    with h5py.File(path, "a") as file:
        del file["xpcs/qmap/dynamic_index_mapping"]
        file["xpcs/qmap/dynamic_index_mapping"] = np.array([2, 4, 5])  # of q by angle
    with opened(path) as reader:
        assert [(each.q, each.phi) for each in reader.bins] == [
            (Q, 60.0),
            (2 * Q, 0.0),
            (2 * Q, 60.0),
        ]


@pytest.mark.rest
@pytest.mark.parametrize("layout", ["aps-8idi", "aps-8idi-before"])
def test_averaged_and_skipped_frames_are_in_the_clock(tmp_path, h5py, layout):
    """A frame of the map is stride times average frames of the detector, after those before."""
    path = written(tmp_path, layout)
    names = {
        "aps-8idi": [
            "xpcs/twotime/config/" + x for x in ("stride_frame", "avg_frame", "begin_frame")
        ],
        "aps-8idi-before": [
            "xpcs/" + x for x in ("stride_frames", "avg_frames", "data_begin_todo")
        ],
    }[layout]
    begin = 7 if layout == "aps-8idi" else 8  # the older one counts from 1
    with h5py.File(path, "a") as file:
        for name, value in zip(names, (2, 3, begin), strict=True):
            del file[name]
            file[name] = value
    data = prepare(choice(path), tmp_path / "data")
    assert data.frame_time == pytest.approx(0.6)
    assert data.first_time == pytest.approx(0.7 + 0.6)


@pytest.mark.rest
@pytest.mark.parametrize(
    "mode", ["one_array_q_last", "data_exchange_keys", "lower_left", "baseline"]
)
def test_the_forms_of_nexus_give_the_same(tmp_path, h5py, mode):
    """Bins along the last axis or by key; time from the other corner; 0 for no correlation."""
    maps, _ = truth()
    expected = prepare(choice(written(tmp_path, "nxxpcs")), tmp_path / "plain")
    path = written(tmp_path, "nxxpcs")
    where = "entry/twotime/two_time_corr_func"
    with h5py.File(path, "a") as file:
        attributes = dict(file[where].attrs)
        del file[where]
        if mode == "data_exchange_keys":
            for number, each in enumerate(maps, 1):
                file[f"{where}/q_{number:03d}"] = each
        else:
            new = {
                "one_array_q_last": maps.transpose(1, 2, 0),
                "lower_left": maps[:, ::-1],
                "baseline": np.triu(maps - 1),
            }[mode]
            file[where] = new
        file[where].attrs.update(attributes)
        if mode.startswith(("one", "data")):
            file[where].attrs["storage_mode"] = mode
        if mode == "lower_left":
            file[where].attrs["time_origin_location"] = mode
        if mode == "baseline":
            file[where].attrs["baseline_reference"] = 0
    data = prepare(choice(path), tmp_path / "data")
    np.testing.assert_allclose(data.mapped("measured"), expected.mapped("measured"), rtol=1e-6)


@pytest.mark.rest
def test_units_of_nexus_are_turned(tmp_path, h5py):
    """Nanometres, radians and milliseconds."""
    path = written(tmp_path, "nxxpcs")
    with h5py.File(path, "a") as file:
        for name, unit in (
            ("entry/instrument/masks/dynamic_q_list", "1/nm"),
            ("entry/instrument/masks/dynamic_phi_list", "rad"),
            ("entry/instrument/detector_1/frame_time", "ms"),
        ):
            file[name].attrs["units"] = unit
    data = prepare(choice(path), tmp_path / "data")
    assert data.q == pytest.approx(Q / 10)
    np.testing.assert_allclose(data.phi, np.degrees([-60, 0, 60]))
    assert data.frame_time == pytest.approx(1e-4)


@pytest.mark.rest
@pytest.mark.parametrize("half", ["upper", "lower", "both", "unlike"])
def test_a_half_is_enough(tmp_path, half):
    """Either one; of both the mean, with a word if they are not alike. The diagonal is not used."""
    maps, _ = truth()
    stored = {"upper": np.triu, "lower": np.tril}.get(half, lambda each: each)(maps)
    if half == "unlike":
        stored = maps.copy()
        stored[:, 2, 5] += 0.02
    path = written(tmp_path, "npz", stored)
    data = prepare(choice(path), tmp_path / "data")
    i, j = np.triu_indices(FRAMES, 1)
    expected = maps[:, i, j] + np.where((i == 2) & (j == 5) & (half == "unlike"), 0.01, 0)
    np.testing.assert_allclose(data.mapped("measured"), expected, rtol=1e-6)
    assert any("not symmetric" in note for note in data.notes) == (half == "unlike")


@pytest.mark.rest
def test_halves_of_unlike_things_are_refused(tmp_path):
    """As where time begins at another corner than is said; one half may be asked for."""
    maps, _ = truth()
    turned = np.ascontiguousarray(maps[:, ::-1])
    path = written(tmp_path, "npz", turned)
    with pytest.raises(ReadError, match="is not symmetric: its halves differ by up to"):
        prepare(choice(path), tmp_path / "data")
    data = prepare(choice(path, half="upper"), tmp_path / "data")
    i, j = np.triu_indices(FRAMES, 1)
    np.testing.assert_array_equal(data.mapped("measured"), turned[:, i, j])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("ranges", "phi"),
    [
        (((295.0, 305.0),), [-60.0]),
        (((-10.0, 10.0), (415.0, 425.0)), [0.0, 60.0]),
        (((-60.0, -60.0),), [-60.0]),
        (((0.0, 360.0),), [-60.0, 0.0, 60.0]),
    ],
)
def test_angles_are_the_same_a_turn_further(tmp_path, ranges, phi):
    """Files count from -180 or from 0."""
    data = prepare(choice(written(tmp_path, "npz"), angles=ranges), tmp_path / "data")
    assert data.phi.tolist() == phi


@pytest.mark.rest
def test_bins_of_a_q_that_is_not_quite_the_same_are_told(tmp_path, h5py):
    """Which q is fitted, and how many bins a wider tolerance would take."""
    path = written(tmp_path, "aps-8idi-before")
    with h5py.File(path, "a") as file:
        file["xpcs/dqlist"][0] = Q * np.array([1.0, 1.0004, 1.03])
    data = prepare(choice(path, q=Q), tmp_path / "data")
    assert data.angles == 2
    assert data.q == pytest.approx(Q * 1.0002)
    assert any("is 0.0054 to 0.00540216" in note for note in data.notes)
    assert any("1 more bins are within 10%" in note for note in data.notes)


@pytest.mark.core("frames")
@pytest.mark.parametrize("what", ["frames", "every", "angles", "dead", "mask", "masks", "first"])
def test_a_choice_takes_what_it_says(tmp_path, what):
    """Frames keep their times; a pair that is masked at one angle is NaN there alone."""
    maps, phi = truth()
    path = written(tmp_path, "npz")
    mask = np.zeros((ANGLES, FRAMES, FRAMES), bool)
    mask[:, 1, 4] = True
    if what == "masks":
        mask[1:] = False
    np.save(tmp_path / "mask.npy", mask if what == "masks" else mask[0])
    given, frames, angles, first = {
        "frames": ({"frames": (4, 9)}, range(3, 9), [0, 1, 2], 0.1),
        "every": ({"every": 3}, range(0, 12, 3), [0, 1, 2], 0.1),
        "angles": ({"angles": ((-70.0, -50.0), (50.0, 70.0))}, range(12), [0, 2], 0.1),
        "dead": ({"dead_frames": (2, 12)}, [0, *range(2, 11)], [0, 1, 2], 0.1),
        "mask": ({"mask": tmp_path / "mask.npy"}, range(12), [0, 1, 2], 0.1),
        "masks": ({"mask": tmp_path / "mask.npy"}, range(12), [0, 1, 2], 0.1),
        "first": ({"first_time": 5.0}, range(12), [0, 1, 2], 5.0),
    }[what]
    data = prepare(choice(path, **given), tmp_path / "data")
    frames = np.array(frames)
    a, b = np.triu_indices(frames.size, 1)
    i, j = frames[a], frames[b]
    expected = maps[:, i, j][angles].copy()
    hidden = (i == 1) & (j == 4)
    if what == "masks":
        expected[0, hidden] = np.nan
        assert data.points == 3 * 66 - 1
    if what == "mask":
        i, j, expected = i[~hidden], j[~hidden], expected[:, ~hidden]
        assert data.points == 3 * 65
    np.testing.assert_allclose(data.mapped("t1"), first + 0.1 * i)
    np.testing.assert_allclose(data.mapped("t2"), first + 0.1 * j)
    np.testing.assert_array_equal(data.mapped("measured"), expected)
    np.testing.assert_allclose(data.phi, phi[angles])


@pytest.mark.rest
def test_frames_without_a_number_are_left_out_and_named(tmp_path):
    """Zeros and NaN; where they have to be listed, the missing ones are named."""
    maps, _ = truth()
    maps[:, 3] = maps[:, :, 3] = 0
    maps[1, 7] = maps[1, :, 7] = np.nan
    path = written(tmp_path, "npz", maps)
    data = prepare(choice(path), tmp_path / "data")
    t1, t2 = data.mapped("t1"), data.mapped("t2")
    frame = [np.rint(t / 0.1).astype(int) for t in (t1, t2)]
    assert not np.any((frame[0] == 4) | (frame[1] == 4))
    assert np.isnan(data.mapped("measured")[1]).sum() == data.missing == 10
    assert any("Frames 4, 8 have no numbers in s.npz: c2[1]" in note for note in data.notes)
    assert "Frame 4 has no numbers in s.npz: c2[0] and 1 more map: left out." in data.notes
    with pytest.raises(ReadError, match=r"Frame 8 has no numbers in s\.npz: c2\[1\]"):
        prepare(choice(path, dead_frames=(4,)), tmp_path / "data")


def test_a_pixel_that_is_nan_is_named(tmp_path):
    """By its map and frames, counted from 1; it is left out if the choice says so."""
    maps, _ = truth()
    maps[2, 4, 6] = maps[2, 6, 4] = np.nan
    path = written(tmp_path, "npz", maps)
    with pytest.raises(
        ReadError, match=r"c2\[2\] is NaN or infinite at 1 pairs of frames: \(5, 7\)"
    ):
        prepare(choice(path), tmp_path / "data")
    data = prepare(choice(path, nan="mask"), tmp_path / "data")
    assert data.points == 3 * 66 - 1


@pytest.mark.rest
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"q": 0.02}, "q = 0.0054"),
        ({"angles": ((10.0, 20.0),)}, "-60, 0, 60 degrees"),
        ({"frames": (1, 13)}, "the maps of s.hdf have 12"),
        ({"frames": (3, 4)}, "2 frames are left"),
        ({"dead_frames": (0,)}, "counted from 1"),
        ({"phi": (1.0,)}, "inspect"),
    ],
)
def test_a_choice_that_takes_nothing_is_refused(tmp_path, given, says):
    """With what there is."""
    path = written(tmp_path, "aps-8idi")
    with pytest.raises(ReadError, match="Fix: ") as refused:
        prepare(Choice(path, **given), tmp_path / "data")
    assert says in str(refused.value)


@pytest.mark.rest
def test_several_q_have_to_be_chosen_from(tmp_path, h5py):
    """A fit is of one."""
    path = written(tmp_path, "aps-8idi-before")
    with h5py.File(path, "a") as file:
        file["xpcs/dqlist"][0, 2] = 2 * Q
    with pytest.raises(ReadError, match="bins at 2 wavevectors"):
        prepare(Choice(path), tmp_path / "data")
    data = prepare(Choice(path, q=0.0108), tmp_path / "data")
    assert data.phi.tolist() == [60.0]


@pytest.mark.rest
@pytest.mark.parametrize("content", ["text", "empty", "none"])
def test_a_file_that_is_no_result_is_refused(tmp_path, h5py, content):
    """With the layouts that are known."""
    path = tmp_path / "s.hdf"
    if content == "text":
        path.write_text("not HDF5")
    if content == "empty":
        h5py.File(path, "w").close()
    with pytest.raises(ReadError, match="Fix: "):
        prepare(Choice(path), tmp_path / "data")


@pytest.mark.rest
def test_what_is_prepared_is_read_once_more_if_the_file_changed(tmp_path):
    """And not if it did not."""
    path = written(tmp_path, "npz")
    calls = []
    advance = lambda done, of: calls.append(done)
    for _ in range(2):
        first = prepare(choice(path), tmp_path / "data", advance)
    assert len(calls) == ANGLES
    maps, _ = truth(1)
    written(tmp_path, "npz", maps)
    second = prepare(choice(path), tmp_path / "data", advance)
    assert len(calls) == 2 * ANGLES
    assert first.pairs == second.pairs


def test_inspect_says_what_a_file_has(tmp_path, monkeypatch, capsys):
    """Its layout, and a line for each bin; what is wrong goes to stderr, with exit code 2."""
    path = written(tmp_path, "aps-8idi")
    monkeypatch.setattr(sys, "argv", ["homodyne", "inspect", str(path)])
    assert __main__.main() == 0
    said = capsys.readouterr().out
    assert "12 frames, 0.1 s apart; 3 bins" in said
    assert "/xpcs/twotime/correlation_map/c2_00003" in said
    monkeypatch.setattr(sys, "argv", ["homodyne", "inspect", str(tmp_path / "other.hdf")])
    assert __main__.main() == 2
    assert "other.hdf is not there" in capsys.readouterr().err
