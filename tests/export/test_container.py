"""A file is read only as it was written, by a jitney and a JAX that can read it."""

import json
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._export.container import read, write
from jitney.errors import ExportError
from tests._arrays import array

X = array(np.arange(6.0))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "f.jitney"
    jitney.optimize(lambda x: jnp.sin(x) * 2).export(path, X)
    return path


def test_no_flipped_bit_is_loaded(file):
    """Each byte of the first kilobyte, and one in 37 of the rest: all are refused before anything
    of them is used.
    """
    whole = file.read_bytes()
    for place in [*range(min(1024, len(whole))), *range(1024, len(whole), 37), len(whole) - 1]:
        file.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]
        )
        with pytest.raises(ExportError):
            jitney.load(file)
    file.write_bytes(whole)
    np.testing.assert_array_equal(jitney.load(file)(X), jax.jit(lambda x: jnp.sin(x) * 2)(X))


def test_no_cut_or_longer_file_is_loaded(file):
    """At every length of the beginning, at some of the rest, and with something behind it."""
    whole = file.read_bytes()
    for length in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        file.write_bytes(whole[:length])
        with pytest.raises(ExportError):
            jitney.load(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(ExportError, match="damaged"):
        jitney.load(file)


def test_what_is_no_file_of_jitney_is_a_sentence(tmp_path):
    """Nothing there, a folder, another file, another format."""
    with pytest.raises(ExportError, match="there is no such file"):
        jitney.load(tmp_path / "none.jitney")
    with pytest.raises(ExportError, match="there is no such file"):
        jitney.load(tmp_path)
    with pytest.raises(ExportError, match="3 is not a path"):
        jitney.load(3)
    (tmp_path / "text").write_text("jitney, a text")
    with pytest.raises(ExportError, match="it is not a program of jitney"):
        jitney.load(tmp_path / "text")
    (tmp_path / "later").write_bytes(b"jitney program 0004\n" + bytes(64))
    with pytest.raises(
        ExportError, match="it has format 4, and this jitney reads formats 1, 2 and 3"
    ):
        jitney.load(tmp_path / "later")


def _with(file, **changed):
    content = read(file)
    write(
        file, {**json.loads(json.dumps(dict(content.header))), **changed}, content.members, "test"
    )


def test_a_file_of_a_later_jax_is_a_sentence(file):
    """JAX promises nothing to older versions; one of now and of before is loaded."""
    for later in ("99.0.1", "0.999.0", f"{jax.__version__.rpartition('.')[0]}.999"):
        _with(file, jax=later)
        with pytest.raises(
            ExportError, match=f"exported by jax {later}, and this is jax {jax.__version__}"
        ):
            jitney.load(file)
    for before in ("0.10.0", "0.9.2"):
        _with(file, jax=before)
        jitney.load(file)(X)


def test_a_calling_convention_out_of_jaxs_window_is_a_sentence(file):
    """JAX says which it knows."""
    program = dict(read(file).header["programs"][0])
    for convention in (1, 1000):
        _with(file, programs=[{**program, "calling_convention": convention}])
        with pytest.raises(ExportError, match=f"convention {convention}, and jax"):
            jitney.load(file)


def test_another_platform_is_a_sentence(file):
    """What is lowered for one platform is not run on another."""
    program = dict(read(file).header["programs"][0])
    _with(file, programs=[{**program, "platforms": ["tpu"]}])
    with pytest.raises(ExportError, match="it was exported for tpu"):
        jitney.load(file)(X)


def test_a_program_for_several_platforms_runs_here(tmp_path):
    """One file for the machine at hand and another."""
    jitney.optimize(lambda x: x * 2).export(tmp_path / "f.jitney", X, platforms=("cpu", "cuda"))
    loaded = jitney.load(tmp_path / "f.jitney")
    assert loaded.programs[0].platforms == ("cpu", "cuda")
    np.testing.assert_array_equal(loaded(X), np.asarray(X) * 2)


def test_what_jax_does_not_load_is_a_sentence(file, monkeypatch):
    """As those are, since jax 0.11.1, that are past the window of six months: JAX's own words."""

    def expired(_bytes):
        raise ValueError("Exported with a version that is too old.")

    monkeypatch.setattr(jax.export, "deserialize", expired)
    with pytest.raises(
        ExportError,
        match=r"does not load what jax \S+ exported: Exported with a version that is too old",
    ):
        jitney.load(file)(X)


def test_a_class_with_other_fields_is_a_sentence(tmp_path):
    """What is put together by its fields is not put together from others."""
    import tests.export._models as models

    path = tmp_path / "f.jitney"
    jitney.optimize(lambda m: m).export(path, models.decay())
    text = json.dumps(read(path).header["programs"][0]).replace('["power"', '["exponent"')
    _with(path, programs=[json.loads(text)])
    with pytest.raises(ExportError, match="Decay has other fields than when it was exported"):
        jitney.load(path)


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    """The system's own words, and no unfinished file."""
    with pytest.raises(ExportError, match="could not be written"):
        jitney.optimize(lambda x: x).export(tmp_path / "no such folder" / "f.jitney", X)
    assert not list(tmp_path.iterdir())


def test_the_command_shows_a_file_and_imports_nothing_of_it(file, capsys):
    """Sizes, versions and the digest; as data too."""
    from jitney._command.arguments import main

    assert main(["show", str(file)]) == 0
    assert jitney.load(file).sha256 in capsys.readouterr().out
    assert main(["show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"]["jax"] == jax.__version__
    file.write_bytes(b"")
    assert main(["show", str(file)]) == 2


def test_a_file_of_the_oldest_jax_is_loaded_as_long_as_jax_does():
    """It was written by jax 0.10.0: a newer one gives numpy's numbers and their gradient, or says
    that it is past its window.
    """
    loaded = jitney.load(Path(__file__).with_name("data") / "jax-0.10.0.jitney")
    assert loaded.versions["jax"] == "0.10.0"
    t, y = np.linspace(0, 1, 7, dtype=np.float32), np.ones(7, np.float32)
    try:
        ours = loaded({"rate": jnp.float32(0.3), "power": 2}, t, y)
    except ExportError as error:
        assert "does not load what jax 0.10.0 exported" in str(error)  # noqa: PT017 - either is right
        return
    np.testing.assert_allclose(ours, np.exp(-0.3 * t) ** 2 - y, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda y: jnp.sum(loaded({"rate": jnp.float32(0.3)}, t, y)))(jnp.asarray(y))
    np.testing.assert_array_equal(slope, -np.ones(7))


ODD = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\0",
    [],
    [[]],
    {},
    ["int", "z"],
    ["name", "", ""],
    ["record", "a", "b", []],
    ["slice", []],
]


def _mutated(header, rng):
    """A header with one of its parts replaced, left out, or twice."""
    header = json.loads(json.dumps(header))
    part = header
    while True:
        key = rng.choice([*part] if isinstance(part, dict) else range(len(part)))
        if not part[key] or not isinstance(part[key], (dict, list)) or rng.random() < 0.2:
            break
        part = part[key]
    match rng.randrange(4):
        case 0:
            del part[key]
        case 1 if isinstance(part, list):
            part.insert(key, part[key])
        case 2 if isinstance(part[key], int):
            part[key] += rng.choice([-1, 1, 2])
        case _:
            part[key] = rng.choice(ODD)
    return header


@pytest.mark.core("0")
@pytest.mark.parametrize(
    "seed",
    [0, 1, pytest.param(2, marks=pytest.mark.sweep), pytest.param(3, marks=pytest.mark.sweep)],
)
def test_a_header_that_jitney_did_not_write_is_a_sentence(tmp_path, seed):
    """Whose digest is right, at random places: it is loaded and told of, and called, or it is an
    error of jitney's.
    """
    path, rng = tmp_path / "f.jitney", random.Random(seed)

    @jitney.optimize(static="how")
    def f(x: Float[Array, "n"], parts, how, *, scale: float = 2.0):
        return {"y": x * parts["a"] * scale, "rest": (how[0], [parts["b"]])}

    given = (
        X,
        {"a": X, "b": jnp.int32(1)},
        ("a", {1}, slice(0, 3), np.arange(2), np.dtype("float32")),
    )
    f.export(path, *given, sizes={"n": 6})
    content = read(path)
    for _ in range(200):
        write(path, _mutated(dict(content.header), rng), content.members, "test")
        try:
            loaded = jitney.load(path)
            assert [str(loaded), loaded.plan, json.dumps(loaded.to_dict())]
            if rng.random() < 0.1:
                loaded(*given)
        except jitney.JitneyError:
            pass
