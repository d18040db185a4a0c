"""The command, as a beamline gives it: a fit from each layout, stopped ones, what it leaves."""

import importlib
import importlib.util
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.homodyne import __main__, _posterior, _run
from examples.homodyne._make import make
from examples.homodyne._mode_fit import fit_mode
from examples.homodyne._posterior import Chain
from examples.homodyne._synthetic import TRUTH, synthetic
from examples.homodyne._template import template
from examples.homodyne.readers import LAYOUTS

NAMES = {"dynamix": "s_event_trc.npz", "pyxpcs": "s_2times_q_1.edf", "npz": "s.npz"}
ANGLES = 3


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["homodyne", *map(str, words)])
    return __main__.main()


def prepared(folder, layout="aps-8idi", mode="laminar_flow", frames=30, **changes):
    """A file and its configuration."""
    folder.mkdir(exist_ok=True)
    path = folder / NAMES.get(layout, "s.hdf")
    make(path, layout, mode, frames=frames, angles=ANGLES)
    text = template(mode, file=path.name)
    for key, value in changes.items():
        lines = [
            f"{key} = {value}" if line.removeprefix("# ").startswith(f"{key} = ") else line
            for line in text.splitlines()
        ]
        text = "\n".join(lines)
    (folder / "fit.toml").write_text(text)
    return folder / "fit.toml"


def result(folder):
    return json.loads((folder / "out" / "result.json").read_text())


def test_a_file_is_fitted_by_the_command_alone(tmp_path, monkeypatch, capsys):
    """It finds the truth, and says so."""
    path = prepared(tmp_path, mode="static_isotropic", frames=12, pictures="false", hdf5="false")
    assert command(monkeypatch, "fit", path) == 0
    assert "strategy: whole" in capsys.readouterr().out
    for name, value in TRUTH["static_isotropic"].items():
        own = result(tmp_path)["parameters"][name]
        assert abs(own["value"] - value) < 5 * own["error"]


@pytest.mark.rest
def test_a_fit_leaves_what_it_found(tmp_path, monkeypatch, capsys):
    """Numbers in JSON and HDF5, pictures and a log; a second time it evaluates nothing, and says
    the same.
    """
    path = prepared(tmp_path, frames=20)
    assert command(monkeypatch, "fit", path) == 0
    first = result(tmp_path)
    capsys.readouterr()
    out = tmp_path / "out"
    assert {each.name for each in out.iterdir()} == {
        "fit.log",
        "result.json",
        "result.h5",
        "maps.png",
        "by_angle.png",
    }
    with importlib.import_module("h5py").File(out / "result.h5") as file:
        values = [each["value"] for each in first["parameters"].values()]
        np.testing.assert_array_equal(file["parameters/values"], values)
        assert file["maps/residual"].shape == (ANGLES, 20, 20)
        residual = file["maps/measured"][()] - file["maps/model"][()]
        sigma = np.array([each["sigma"] for each in first["angles"]])[:, None, None]
        np.testing.assert_allclose(file["maps/residual"], residual / sigma, atol=2e-4)
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    again = result(tmp_path)
    assert again["took"]["evaluations"] == 0
    assert again["parameters"] == first["parameters"]
    assert "evaluation" not in capsys.readouterr().out


@pytest.mark.rest
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_fit_from_each_layout(tmp_path, monkeypatch, layout):
    """Of one ring, in a mode without an angle, where the layout has one map; with the angles of the
    configuration, where the file has none.
    """
    ring = layout in ("dynamix", "pyxpcs")
    changes = {"phi": "[-90.0, -30.0, 30.0]"} if layout == "esrf" else {}
    mode = "static_isotropic" if ring else "laminar_flow"
    path = prepared(tmp_path, layout, mode, 40, **changes)
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    found = result(tmp_path)
    assert found["data"]["layout"] == layout
    assert found["data"]["q"] == pytest.approx(0.0054)
    for name, value in TRUTH[mode].items():
        own = found["parameters"][name]
        true = np.degrees(value) if own["unit"] == "degrees" else value
        assert abs(own["value"] - true) < 5 * own["error"]
    assert found["chi_squared_by_freedom"] == pytest.approx(1, abs=0.15)


@pytest.mark.rest
@pytest.mark.parametrize("strategy", ["whole", "chunked", "streamed"])
def test_a_stopped_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch, strategy):
    """Stopped before an evaluation as a batch system does it; what was evaluated is not evaluated
    again. Each strategy has the parameters of the others, to 1e-9 of their errors.
    """
    changes = {"strategy": f'"{strategy}"', "chunk": 100, "pictures": "false"}
    whole = prepared(tmp_path / "a", **changes)
    assert command(monkeypatch, "fit", whole, "--quiet") == 0
    path = prepared(tmp_path / "b", **changes)
    original, calls = _run._Watch.__call__, []

    def stopped(self, count, cost):
        original(self, count, cost)
        calls.append(count)
        if count == 4:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_run._Watch, "__call__", stopped)
    assert command(monkeypatch, "fit", path, "--quiet") == 130
    monkeypatch.setattr(_run._Watch, "__call__", original)
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    first, second = result(tmp_path / "a"), result(tmp_path / "b")
    for key in ("parameters", "covariance", "chi_squared", "angles"):
        assert first[key] == second[key]
    assert calls == [1, 2, 3, 4]
    assert second["took"]["evaluations_from_checkpoint"] >= 4
    both = (each["took"]["evaluations"] for each in (first, second))
    assert next(both) == next(both) + second["took"]["evaluations_from_checkpoint"]


@pytest.mark.parametrize(
    ("count", "seconds", "limit", "text"),
    [
        (1, 0.2, 200, ""),
        (2, 60.0, 200, "; fits take 10 to 30: 8 to 28 more are 8.0 min to 28.0 min"),
        (2, 60.0, 12, "; fits take 10 to 30: 8 to 10 more are 8.0 min to 10.0 min"),
        (20, 60.0, 200, "; fits take 10 to 30: 0 to 10 more are 0 s to 10.0 min"),
        (50, 60.0, 200, "; 150 more, at which it stops, are 2.5 h"),
        (200, 60.0, 200, ""),
    ],
)
def test_time_left_is_estimated(count, seconds, limit, text):
    """Of evaluations that are usual, and then of those that are allowed."""
    assert _run.left(count, seconds, limit) == text


@pytest.mark.rest
@pytest.mark.parametrize("way", ["chunked", "streamed"])
def test_a_bar_changes_no_bit(way):
    """Of a fit whose evaluations show how many chunks are done."""
    data = synthetic("static_isotropic", frames=20, angles=2)
    plain, shown = (
        fit_mode("static_isotropic", data, way=way, chunk=50, bar=bar) for bar in (False, True)
    )
    assert plain.x.tobytes() == shown.x.tobytes()


@pytest.mark.rest
def test_a_pass_of_another_fit_is_put_aside(tmp_path, monkeypatch):
    """Its checkpoint is of other parameters, and would be refused."""
    changes = {"strategy": '"streamed"', "chunk": 100, "pictures": "false"}
    path = prepared(tmp_path, mode="static_isotropic", **changes)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "pass.checkpoint").write_bytes(b"of another fit")
    assert command(monkeypatch, "fit", path, "--quiet") == 0


@pytest.mark.rest
def test_a_pass_that_broke_off_goes_on(tmp_path, monkeypatch):
    """From the rows that it had read, to the bits of an unbroken fit."""
    changes = {"strategy": '"streamed"', "chunk": 100, "within": 1, "pictures": "false"}
    whole = prepared(tmp_path / "a", mode="static_isotropic", **changes)
    assert command(monkeypatch, "fit", whole, "--quiet") == 0
    path = prepared(tmp_path / "b", mode="static_isotropic", **changes)
    replace, saves = Path.replace, []

    def stopped(file, target):
        if Path(target).name == "pass.checkpoint":
            saves.append(file)
            if len(saves) == 3:  # of a pass of 5 chunks
                raise KeyboardInterrupt
        return replace(file, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stopped)
        assert command(monkeypatch, "fit", path, "--quiet") == 130
    assert (tmp_path / "b" / "checkpoint" / "pass.checkpoint").exists()
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    assert result(tmp_path / "a")["parameters"] == result(tmp_path / "b")["parameters"]


@pytest.mark.rest
def test_strategies_agree_late_in_a_long_series(tmp_path, monkeypatch):
    """Where float32 would lose the lags: the first frame is a million frames after the origin."""
    found = []
    for strategy in ("whole", "chunked", "streamed"):
        folder = tmp_path / strategy
        changes = {"strategy": f'"{strategy}"', "chunk": 100, "pictures": "false"}
        path = prepared(folder, mode="static_isotropic", **changes, first_time=1e5)
        text = path.read_text()
        for name in ("D0", "alpha"):  # what is left is the same at all times
            text = text.replace(f"{name} = {{ ", f"{name} = {{ held = 0.0, ")
        path.write_text(text)
        assert command(monkeypatch, "fit", path, "--quiet") == 0
        found.append([own["value"] for own in result(folder)["parameters"].values()])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-8)


@pytest.mark.rest
def test_another_choice_begins_again(tmp_path, monkeypatch):
    """What is known of other data, or in other strategies, is not used; tolerances change nothing
    that is known.
    """
    path = prepared(tmp_path, pictures="false", max_evaluations=3)
    assert command(monkeypatch, "fit", path, "--quiet") == 1
    known = 3
    path.write_text(path.read_text().replace("max_evaluations = 3", "max_evaluations = 200"))
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    assert result(tmp_path)["took"]["evaluations_from_checkpoint"] >= known
    path.write_text(path.read_text().replace("every = 1 ", "every = 2 ", 1))
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    assert result(tmp_path)["took"]["evaluations_from_checkpoint"] == 0
    assert result(tmp_path)["data"]["frames_used"] == 15


@pytest.mark.rest
def test_a_pixel_that_is_masked_is_left_out_of_the_fit(tmp_path, monkeypatch):
    """The result is that of the others."""
    path = prepared(tmp_path, "npz", pictures="false", hdf5="false")
    with np.load(tmp_path / "s.npz") as file:
        arrays = dict(file)
    arrays["c2"][1, 4, 7] = arrays["c2"][1, 7, 4] = np.nan
    np.savez(tmp_path / "s.npz", **arrays)
    assert command(monkeypatch, "fit", path, "--quiet") == 2
    path.write_text(path.read_text().replace('nan = "refuse"', 'nan = "mask"'))
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    found = result(tmp_path)
    assert found["points"] == 3 * 435 - 1
    assert found["data"]["left_out"] == 1
    assert any("c2[1] is NaN or infinite at 1 pairs" in note for note in found["notes"])


def test_what_is_wrong_ends_with_two_and_its_fix(tmp_path, monkeypatch, capsys):
    """On stderr, and in no traceback."""
    path = prepared(tmp_path, nan='"drop"')
    assert command(monkeypatch, "fit", path) == 2
    assert "`nan` is 'drop'" in capsys.readouterr().err
    assert command(monkeypatch, "template", "--mode", "two_component", "--yaml") == 0
    assert 'mode: "two_component"' in capsys.readouterr().out
    path = prepared(tmp_path)
    assert command(monkeypatch, "fit", path, "--check") == 0
    assert "is right: laminar_flow" in capsys.readouterr().out


def test_a_template_of_a_file_lists_its_wavevectors(tmp_path, monkeypatch, capsys):
    """From which one is to be chosen; without them the key is as always."""
    path = tmp_path / "s.npz"
    np.savez(path, c2=np.ones((3, 9, 9)), phi=np.zeros(3), q=[0.0054, 0.0108, 0.0054], dt=0.1)
    assert command(monkeypatch, "template", "--file", path) == 0
    said = capsys.readouterr().out
    assert "# q = 0.0054 " in said
    assert "one of 0.0054, 0.0108" in said


@pytest.mark.rest
def test_the_posterior_is_drawn_where_it_is_asked_for(tmp_path, monkeypatch):
    """With the priors of the parameters, into both results; without its package the command says
    what to install.
    """
    path = prepared(tmp_path, mode="static_isotropic", pictures="false", chains=2, draws=50)
    text = path.read_text().replace("D0 = { ", "D0 = { prior = [1e4, 50.0], ")
    path.write_text(text.replace("D_offset = { ", "D_offset = { held = 500.0, "))
    if importlib.util.find_spec("blackjax") is None:
        assert command(monkeypatch, "fit", path, "--quiet") == 2

    def normal(aim, key, start, warmup, draws):
        del key, start, warmup
        return Chain(np.random.default_rng(0).normal(size=(draws, aim.size)), 0)

    monkeypatch.setattr(_posterior, "nuts", lambda: normal)
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    found = result(tmp_path)
    assert set(found["posterior"]["parameters"]) == {"D0", "alpha", "contrast", "offset"}
    with importlib.import_module("h5py").File(tmp_path / "out" / "result.h5") as file:
        assert file["posterior/draws"].shape == (2, 50, 4)


@pytest.mark.rest
def test_one_configuration_for_many_files(tmp_path, monkeypatch):
    """Each has its own results, and its own checkpoint."""
    path = prepared(tmp_path, mode="static_isotropic", pictures="false")
    other = tmp_path / "run8.hdf"
    make(other, "aps-8idi", "static_isotropic", frames=30, angles=ANGLES, seed=1)
    assert command(monkeypatch, "fit", path, "--quiet") == 0
    assert command(monkeypatch, "fit", path, "--quiet", "--file", other) == 0
    first = result(tmp_path)
    second = json.loads((tmp_path / "out" / "run8" / "result.json").read_text())
    assert first["data"]["file"] != second["data"]["file"]
    assert first["parameters"] != second["parameters"]
    assert (tmp_path / "out" / "run8" / "checkpoint" / "evaluations.npz").exists()
