"""A configuration: what it says, what a wrong line is answered, what the template prints."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from examples.homodyne._config import ConfigError, read
from examples.homodyne._modes import MODES
from examples.homodyne._template import template

SMALL = '[data]\nfile = "s.hdf"\n\n[fit]\nmode = "laminar_flow"\n'


def config(folder, text, name="fit.toml"):
    path = folder / name
    path.write_text(text)
    return read(path)


def test_paths_begin_at_the_folder_of_the_configuration(tmp_path):
    """And what is not written has its default."""
    found = config(tmp_path, SMALL)
    assert found.choice.file == tmp_path / "s.hdf"
    assert found.choice.dead_frames == "auto"
    assert found["fit"]["strategy"] == "auto"
    assert found.mode.name == "laminar_flow"


@pytest.mark.core("toml-laminar_flow")
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("kind", ["toml", "yaml"])
def test_the_template_is_read_again(tmp_path, mode, kind):
    """To the defaults of its mode, in both languages."""
    if kind == "yaml":
        pytest.importorskip("yaml")
    found = config(tmp_path, template(mode, yaml=kind == "yaml"), f"fit.{kind}")
    bare = config(tmp_path, SMALL.replace("laminar_flow", mode).replace("s.hdf", "results.hdf"))
    assert found.values == bare.values
    assert found.mode is MODES[mode]
    start = [found.parameters["start"][name] for name in found.mode.names]
    np.testing.assert_allclose(start, found.mode.start, rtol=1e-8)
    bounds = [found.parameters["bounds"][name] for name in found.mode.names]
    np.testing.assert_allclose(np.transpose(bounds)[0], found.mode.lower, rtol=1e-8)
    np.testing.assert_allclose(np.transpose(bounds)[1], found.mode.upper, rtol=1e-8)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["toml", "yaml"])
def test_each_comment_of_the_template_can_be_written(tmp_path, kind):
    """A key that is a comment is right once its # is taken away."""
    if kind == "yaml":
        pytest.importorskip("yaml")
    lines = template("laminar_flow", yaml=kind == "yaml").splitlines()
    body = [re.sub(r"^# (\s*\w+(?: = |: ))", r"\1", line) for line in lines]
    found = config(tmp_path, "\n".join(body), f"fit.{kind}")
    assert found.choice.q == 0.0054
    assert found.choice.frames == (1, 1000)
    assert found["fit"]["by_angle"] is True


WRONG = [
    ("key", "[data]\nfile = 's'\nfraems = [1, 5]", 3, "no key 'fraems'", "'frames'"),
    ("section", "[date]\nfile = 's'", 1, "no section 'date'", "'data'"),
    ("kind", "[data]\nfile = 's'\nframes = [5, 1]", 3, "`frames` is [5, 1]", "template"),
    ("bool", "[data]\nfile = 's'\nevery = true", 3, "`every` is True", "1 or more"),
    ("mode", "[data]\nfile = 's'\n[fit]\nmode = 'flow'", 4, "no mode 'flow'", "laminar_flow"),
    ("file", "[data]\nq = 0.1\n[fit]\nmode = 'laminar_flow'", 1, "no `file`", "results.hdf"),
    ("layout", "[data]\nfile = 's'\nlayout = 'aps'", 3, "`layout` is 'aps'", "'aps-8idi'"),
    ("syntax", "[data]\nfile = s.hdf", 0, "line 2", "in quotes"),
    (
        "parameter",
        SMALL + "[parameters]\nD_0 = { start = 1.0 }",
        7,
        "no parameter 'D_0'",
        "'D0'",
    ),
    (
        "entry",
        SMALL + "[parameters.D0]\nstrat = 1.0",
        6,
        "no entry 'strat'",
        "'start'",
    ),
    (
        "outside",
        SMALL + "[parameters]\nD0 = { start = 5.0, bounds = [6.0, 9.0] }",
        7,
        "starts at 5",
        "bounds = [6, 9]",
    ),
]


@pytest.mark.core("key")
@pytest.mark.parametrize(
    ("name", "line", "place", "says", "fix"), WRONG, ids=[case[0] for case in WRONG]
)
def test_a_wrong_line_is_named_with_its_fix(tmp_path, name, line, place, says, fix):
    """By number; a name that is misspelt is answered with the nearest one."""
    text = (
        line
        if "[fit]" in line or name in ("file", "section", "syntax")
        else line + "\n[fit]\nmode = 'laminar_flow'"
    )
    with pytest.raises(ConfigError) as wrong:
        config(tmp_path, text)
    message = str(wrong.value)
    assert message.startswith(f"fit.toml:{place}: " if place else "fit.toml: ")
    assert says in message
    assert fix in message
    if name == "key":
        readme = Path(__file__).parents[1] / "README.md"
        assert f"```text\n{message}\n```" in readme.read_text()


@pytest.mark.rest
def test_angles_are_degrees_and_parameters_are_held_tied_and_freed(tmp_path):
    """As `fit_mode` takes them."""
    text = (
        "[parameters]\nphi0 = { start = 90.0, bounds = [-180.0, 180.0] }\nalpha = { held = true }\n"
        "beta = { held = -0.25 }\ngamma_offset = { tied = 'gamma0' }\noffset = { start = 1.0 }\n"
        "'contrast[2]' = { bounds = [0.1, 0.2] }\n"
    )
    given = config(tmp_path, SMALL + text).parameters
    assert given["start"]["phi0"] == pytest.approx(np.pi / 2)
    assert given["bounds"]["phi0"] == pytest.approx((-np.pi, np.pi))
    assert given["held"] == {"alpha": -0.3, "beta": -0.25}
    assert given["tied"] == {"gamma_offset": "gamma0"}
    assert given["bounds"]["contrast[2]"] == (0.1, 0.2)


@pytest.mark.rest
def test_yaml_without_its_reader_is_said_so(tmp_path, monkeypatch):
    """With the two ways out."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "yaml" else found(name)
    )
    with pytest.raises(ConfigError, match=r"pip install pyyaml, or write the same as TOML"):
        config(tmp_path, "data:\n  file: s\n", "fit.yaml")


@pytest.mark.rest
def test_a_line_of_yaml_is_named(tmp_path):
    """Of a key, and of what cannot be read at all; a number without a point is one."""
    pytest.importorskip("yaml")
    good = "data:\n  file: s.hdf\nfit:\n  mode: laminar_flow\nparameters:\n  D0: {start: 1e4}\n"
    assert config(tmp_path, good, "fit.yaml").parameters["start"]["D0"] == 1e4
    with pytest.raises(ConfigError, match=r"^fit.yaml:3: there is no key 'qq'"):
        config(tmp_path, good.replace("s.hdf\n", "s.hdf\n  qq: 1\n"), "fit.yaml")
    with pytest.raises(ConfigError, match=r"^fit.yaml:2: "):
        config(tmp_path, "data:\n file: s: t\n", "fit.yaml")


@pytest.mark.rest
def test_no_configuration_is_answered_with_how_to_make_one(tmp_path):
    """By the command that prints it."""
    with pytest.raises(ConfigError, match=r"template > fit.toml"):
        read(tmp_path / "fit.toml")
