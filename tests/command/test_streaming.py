"""`stream CONFIG.toml`: what is run, what is said of a line that is not right, and a run that is
stopped and goes on to the same bits.
"""

import signal
import sys

import numpy as np
import pytest

from jitney._command.arguments import main

MODULE = """
import signal
import jax.numpy as jnp, numpy as np
from jaxtyping import Array, Float
import jitney

STOP_AT = []

@jitney.optimize
def moments(x: Float[Array, "n k"], y: Float[Array, "n"], scale: Float[Array, "k"], power: int = 2):
    z = (x * scale) @ jnp.ones(x.shape[1], x.dtype) + y
    return {"mean": jnp.mean(z), "powers": jnp.sum(z**power)}

def plain(x):
    return x

class Rows:
    def __init__(self, path):
        self.rows = np.load(path)
        self.shape, self.dtype = self.rows.shape, self.rows.dtype
    def __getitem__(self, where):
        if STOP_AT and where.start >= STOP_AT[0]:
            STOP_AT.clear()
            signal.raise_signal(signal.SIGTERM)
        return self.rows[where]
"""
CONFIG = """
[stream]
function = "{module}:moments"
chunk = { n = 64 }
progress = false

[data]
x = "x.npy"
y = ["y0.npy", "y1.npy"]

[values]
scale = [1.0, 2.0, 3.0]
power = 3

[checkpoint]
folder = "stored"
every = 1

[output]
file = "out/result.npz"
"""
X = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=1000).astype(np.float32)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A function that writes the configuration, with some of its text replaced."""
    name = f"streamed_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y0.npy", Y[:300])
    np.save(tmp_path / "y1.npy", Y[300:])
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(*changes, lines=CONFIG):
        for old, new in changes:
            assert old in lines
            lines = lines.replace(old, new)
        (tmp_path / "config.toml").write_text(lines.replace("{module}", name))
        return str(tmp_path / "config.toml")

    yield write
    sys.modules.pop(name, None)


def result(tmp_path):
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        return dict(arrays)


def told(capsys, file):
    assert main(["stream", file]) == 2
    return capsys.readouterr().err


def test_files_are_streamed_and_the_result_is_written(config, tmp_path, capsys):
    """Paths begin at the folder of the configuration; the arrays have the names of their places."""
    assert main(["stream", config()]) == 0
    z = (X.astype(float) * [1, 2, 3]).sum(1) + Y
    found = result(tmp_path)
    np.testing.assert_allclose(found["mean"], z.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["powers"], (z**3).sum(), rtol=1e-3)
    said = capsys.readouterr().out
    assert said.startswith("1,000 rows in 16 chunks")
    assert "result.npz: mean, powers" in said
    assert not list((tmp_path / "stored").iterdir())


def test_a_stopped_run_goes_on_to_the_same_bits(config, tmp_path, capsys):
    """SIGTERM, which a cluster sends before it kills, ends it as Ctrl-C does, with a checkpoint."""
    changed = ('"x.npy"', '{ file = "x.npy", open = "{module}:Rows" }')
    file = config(changed)
    assert main(["stream", file]) == 0
    unbroken = result(tmp_path)
    (tmp_path / "out" / "result.npz").unlink()
    module = sys.modules[f"streamed_{tmp_path.name.replace('-', '_')}"]
    module.STOP_AT.append(600)
    capsys.readouterr()
    assert main(["stream", file]) == 143
    assert "Stopped by SIGTERM. The same command goes on from " in capsys.readouterr().err
    assert not (tmp_path / "out" / "result.npz").exists()
    assert main(["stream", file]) == 0
    assert ", resumed, " in capsys.readouterr().out
    again = result(tmp_path)
    assert {name: x.tobytes() for name, x in again.items()} == {
        name: x.tobytes() for name, x in unbroken.items()
    }
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.rest
def test_a_run_begins_anew_where_asked(config, tmp_path, capsys):
    """A checkpoint that is of no use, as of other values, is removed."""
    (tmp_path / "stored").mkdir()
    (tmp_path / "stored" / "config.checkpoint").write_bytes(b"of no use")
    assert "config.checkpoint" in told(capsys, config())
    assert main(["stream", config(("every = 1", "every = 1\nresume = false"))]) == 0
    assert result(tmp_path)


WRONG = [
    (("chunk =", "chunks ="), "config.toml:4", "no key 'chunks'", "did you mean 'chunk'?"),
    (("[output]", "[outputs]"), "config.toml:19", "no section", "did you mean 'output'?"),
    (("[stream]", "x = 1\n[stream]"), "config.toml", "no section 'x'", "--template shows them"),
    (("{ n = 64 }", '{ n = "many" }'), "config.toml:4", "'chunk' is {'n': 'many'}", "as chunk ="),
    (("{ n = 64 }", "true"), "config.toml:4", "'chunk' is True", "as chunk = { n = 65536 }"),
    (("every = 1", 'every = "1 m"'), "config.toml:17", "'every' is '1 m'", 'as every = "30s"'),
    (("result.npz", "result.csv"), "config.toml:20", "ends in .npz", 'as file = "result.npz"'),
    (('file = "out', '# "out'), "config.toml:19", "[output] has no 'file'", "below [output]"),
    (("[stream]\n", "[stream\n"), "config.toml", "it is not read", "prints one that is right"),
    (("x.npy", "X.npy"), "config.toml:8", "is not there", "did you mean 'x.npy'?"),
    (('"x.npy"', "3"), "config.toml:8", "'x' is 3", 'write x = "x.npy"'),
    (('"x.npy"', '{ files = "x.npy" }'), "config.toml:8", "'files'", "did you mean 'file'?"),
    (('x = "', 'xs = "'), "config.toml:8", "no parameter 'xs'", "did you mean 'x'?"),
    (("power =", "powers ="), "config.toml:13", "no parameter 'powers'", "mean 'power'?"),
    (("power = 3", "y = 3"), "config.toml:13", "is in [data] too", "remove one of the two"),
    (('x = "x.npy"\n', ""), "config.toml:7", "no value for 'x'", 'write x = "x.npy"'),
    ((":moments", ":moment"), "config.toml:3", "'moment' is not in", "correct the name"),
    ((":moments", ":plain"), "config.toml:3", "is not a program", "decorate it"),
    (("{module}:", "no_such:"), "config.toml:3", "no module 'no_such'", "set PYTHONPATH"),
    (("{module}:", "no_such.py:"), "config.toml:3", "is not there", "correct the name"),
    (('"x.npy"', '{ file = "x.npy", dataset = "x" }'), "config.toml:8", "of no use", "remove it"),
]


@pytest.mark.parametrize(("change", "line", "what", "fix"), WRONG)
def test_a_wrong_line_is_named(config, capsys, change, line, what, fix):
    """With its number, and what to write there; before anything is compiled."""
    text = told(capsys, config(change))
    assert text.splitlines()[0].split(": ")[0].endswith(line)
    assert what in text
    assert fix in text.splitlines()[-1]


@pytest.mark.rest
def test_files_with_several_arrays_are_opened(config, tmp_path, capsys):
    """By the packages that read them; a name that is not in the file is an error of its line."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file["entry/x"] = X
    where = '{ file = "run.h5", dataset = "entry/x" }'
    assert main(["stream", config(('"x.npy"', where))]) == 0
    assert result(tmp_path)["mean"].shape == ()
    text = told(capsys, config(('"x.npy"', where.replace("entry/x", "entry"))))
    assert "config.toml:8: run.h5 has no array under 'entry'" in text
    assert "h5py is not installed" not in text


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["zarr", "arrow"])
def test_other_kinds_of_files(config, tmp_path, kind):
    """The same numbers as from .npy."""
    assert main(["stream", config()]) == 0
    expected = result(tmp_path)
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        zarr.save(str(tmp_path / "y.zarr"), Y)
        entry = '{ file = "y.zarr" }'
    else:
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"y": Y})
        with arrow.ipc.new_file(str(tmp_path / "y.arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=300)
        entry = '{ file = "y.arrow", dataset = "y" }'
    assert main(["stream", config(('["y0.npy", "y1.npy"]', entry))]) == 0
    found = result(tmp_path)
    assert all(np.array_equal(found[name], x) for name, x in expected.items())


@pytest.mark.rest
def test_the_template_is_a_configuration(config, tmp_path, capsys):
    """With the names of files and function filled in, it runs."""
    assert main(["stream", "--template"]) == 0
    lines = capsys.readouterr().out
    module = f"streamed_{tmp_path.name.replace('-', '_')}.py"
    changes = [
        ('"script.py:function"', f'"{module}:moments"'),
        ('# y = ["1.npy", "2.npy"]', 'y = ["y0.npy", "y1.npy"]'),
        ("# order = 3", "scale = [1.0, 1.0, 1.0]"),
        ("progress = true", "progress = false"),
        ('"result.npz"', '"out/result.npz"'),
    ]
    assert main(["stream", config(*changes, lines=lines)]) == 0
    assert len(result(tmp_path)) == 2


def test_a_command_without_a_file_says_how_to_begin(capsys):
    """With the command that prints a template."""
    assert main(["stream"]) == 2
    assert "--template > config.toml" in capsys.readouterr().err
