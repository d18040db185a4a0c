"""`jitney.processes.Checkpoints`: saved on one mesh, restored on another."""

import enum
import functools
import json
import pickle
import struct

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import jitney


def laid(tree, mesh, *spec):
    """Matrices of a tree on a mesh."""
    to = NamedSharding(mesh.mesh, P(*spec))
    return jax.tree.map(
        lambda x: jax.device_put(x, to) if eqx.is_array(x) and x.ndim == 2 else x, tree
    )


@pytest.fixture
def training():
    """A model with functions among its leaves, its optimiser's state, a key and arrays of the
    host.
    """
    model = eqx.nn.MLP(8, 8, 16, 1, key=jax.random.key(0))
    state = optax.adam(1e-3).init(eqx.filter(model, eqx.is_array))
    return {
        "model": model,
        "state": state,
        "key": jax.random.key(7),
        "seen": np.arange(3),
        "scale": jnp.ones(2, jnp.bfloat16),
    }


def zeros(tree):
    """The same tree, with other numbers."""
    return jax.tree.map(
        lambda x: x * 0 if eqx.is_array(x) and jnp.issubdtype(x.dtype, jnp.number) else x, tree
    )


def numbers(tree):
    plain = jax.tree.map(
        lambda x: (
            jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        ),
        eqx.filter(tree, eqx.is_array),
    )
    return [np.asarray(x) for x in jax.tree.leaves(plain)]


@pytest.mark.parametrize("spec", [("data", None), (None, "data"), (("data", "model"), None)])
def test_a_checkpoint_is_restored_on_another_mesh(training, tmp_path, spec):
    """From eight devices on four along another axis, and on one: to the bit, and where the tree
    asks for it.
    """
    eight = laid(training, jitney.mesh(data=4, model=2), *spec)
    checkpoints = jitney.processes.Checkpoints(tmp_path / "run")
    checkpoints.save(3, eight)
    four = laid(zeros(training), jitney.mesh(model=4, devices=jax.devices()[:4]), None, "model")
    for like in (four, zeros(training), jax.tree.map(lambda x: x, eight)):
        step, found = checkpoints.restore(like)
        assert step == 3
        for a, b in zip(numbers(found), numbers(training), strict=True):
            np.testing.assert_array_equal(a, b)
        assert found["model"].activation is like["model"].activation
        weight, wanted = (tree["model"].layers[0].weight for tree in (found, like))
        assert weight.sharding.is_equivalent_to(wanted.sharding, 2)
        assert isinstance(found["seen"], np.ndarray)


def test_shapes_that_stand_for_arrays_are_restored_too(training, tmp_path):
    """So that nothing of the size of the model is made before it is read."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, training)
    abstract = {**eqx.filter_eval_shape(lambda: training), "seen": training["seen"]}
    mesh = jitney.mesh(data=8)
    abstract["state"] = jitney.place(abstract["state"], shard={"out": "data"}, mesh=mesh)
    _, found = checkpoints.restore(abstract)
    weight = found["state"][0].mu.layers[1].weight
    assert weight.sharding.is_equivalent_to(NamedSharding(mesh.mesh, P("data")), 2)
    np.testing.assert_array_equal(weight, training["state"][0].mu.layers[1].weight)
    assert isinstance(found["model"].layers[1].bias.sharding, SingleDeviceSharding)
    np.testing.assert_array_equal(found["model"].layers[1].bias, training["model"].layers[1].bias)


def test_a_tree_is_placed_as_a_program_has_it(training):
    """Which then moves nothing."""
    mesh = jitney.mesh(data=4, model=2)

    @jitney.optimize(shard=("fsdp", {"out": "model"}), mesh=mesh)
    def double(model: eqx.nn.MLP) -> eqx.nn.MLP:
        return jax.tree.map(lambda x: 2 * x if eqx.is_array(x) else x, model)

    model = jitney.place(training["model"], shard=("fsdp", {"out": "model"}), mesh=mesh)
    with jax.transfer_guard("disallow"):
        got = double(model)
    np.testing.assert_array_equal(got.layers[0].weight, 2 * training["model"].layers[0].weight)
    assert model.layers[0].weight.sharding.is_equivalent_to(
        NamedSharding(mesh.mesh, P("model", "data")), 2
    )


@pytest.mark.parametrize(
    ("shard", "error", "says"),
    [
        ({"out": "nowhere"}, jitney.errors.MeshError, "'out' is to be sharded over 'nowhere'"),
        (None, jitney.errors.OptionError, "says nothing"),
    ],
)
def test_rules_that_fit_nothing(training, shard, error, says):
    """Are named, as those of a program."""
    with pytest.raises(error, match=says), jitney.mesh(data=8):
        jitney.place(training["model"], shard=shard)


def test_the_newest_are_kept(tmp_path):
    """And any of them can be restored."""
    checkpoints = jitney.processes.Checkpoints(tmp_path, keep=2)
    for step in (1, 5, 9):
        checkpoints.save(step, {"w": np.full(2, step)})
    assert checkpoints.steps == (5, 9)
    assert checkpoints.restore({"w": np.zeros(2, int)})[1]["w"][0] == 9
    assert checkpoints.restore({"w": np.zeros(2, int)}, step=5)[1]["w"][0] == 5
    with pytest.raises(jitney.JitneyError, match="there is no step 1"):
        checkpoints.restore({"w": np.zeros(2, int)}, step=1)
    with pytest.raises(jitney.JitneyError, match="step 9 is saved already"):
        checkpoints.save(9, {"w": np.zeros(2)})


def test_without_a_checkpoint_a_run_begins_as_it_is(training, tmp_path):
    """The same script starts and resumes."""
    step, tree = jitney.processes.Checkpoints(tmp_path / "new").restore(training)
    assert step == 0
    assert tree is training


@pytest.mark.parametrize(
    ("like", "says"),
    [
        (
            {"w": np.zeros((3, 2)), "n": np.zeros(2)},
            r"\['w'\] is float64 \[2, 2\] in the checkpoint and float64 \[3, 2\] in the tree",
        ),
        (
            {"w": np.zeros((2, 2), np.float32), "n": np.zeros(2)},
            r"\['w'\] is float64 \[2, 2\] in the checkpoint and float32",
        ),
        ({"w": np.zeros((2, 2))}, r"\['n'\] is only in the checkpoint"),
        (
            {"w": np.zeros((2, 2)), "n": np.zeros(2), "m": np.zeros(2)},
            r"\['m'\] is only in the tree",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, like, says):
    """The leaf, and how it differs."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.zeros((2, 2)), "n": np.zeros(2)})
    with pytest.raises(jitney.JitneyError, match=says):
        checkpoints.restore(like)


def test_a_checkpoint_needs_arrays(tmp_path):
    """And a number of them to keep."""
    with pytest.raises(jitney.JitneyError, match="there is no array"):
        jitney.processes.Checkpoints(tmp_path).save(1, {"f": jnp.tanh})
    with pytest.raises(jitney.errors.OptionError, match="keep=0"):
        jitney.processes.Checkpoints(tmp_path, keep=0)


def test_what_has_no_numbers_is_named(tmp_path):
    """Shapes, traced arrays and texts; and steps that are none."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    with pytest.raises(jitney.JitneyError, match=r"\['w'\] has no numbers"):
        checkpoints.save(1, {"w": shape})
    with pytest.raises(jitney.JitneyError, match="being traced"):
        jax.jit(lambda w: checkpoints.save(1, {"w": w}))(jnp.ones(2))
    with pytest.raises(jitney.JitneyError, match=r"\['t'\] is an array of dtype <U1"):
        checkpoints.save(1, {"w": np.ones(2), "t": np.array(["a"])})
    with pytest.raises(jitney.JitneyError, match=r"nothing is saved yet, and \['w'\] is a shape"):
        checkpoints.restore({"w": shape})
    for step in (-1, 5.5, True, "5"):
        with pytest.raises(jitney.JitneyError, match="is not a step"):
            checkpoints.save(step, {"w": np.ones(2)})
    with pytest.raises(jitney.errors.OptionError, match="not a folder"):
        jitney.processes.Checkpoints("gs://bucket/run")
    (tmp_path / "7").mkdir()
    with pytest.raises(jitney.JitneyError, match="not a checkpoint of jitney's"):
        checkpoints.restore({"w": np.ones(2)})


ODD_NAN = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
VALUES = {
    "it": (7, 0),
    "lr": (0.1, 0.5),
    "huge": (-(10**5000), 1),
    "nan": (ODD_NAN, 0.0),
    "zero": (complex(-0.0, ODD_NAN), 0j),
    "flag": (True, False),
    "text": ("\ud800 \u00e9", ""),
    "bytes": (b"\x00\xff", b""),
    "kind": (7, 0.5),
    "none": (None, None),
}


@pytest.mark.core("lr", "nan", "text", "kind")
@pytest.mark.parametrize("name", VALUES)
def test_values_of_python_come_back_to_the_bit(tmp_path, name):
    """Of the type that was saved, whatever the tree has in their place."""
    saved, other = VALUES[name]
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "x": [saved]})
    found = checkpoints.restore({"w": np.zeros(2), "x": [other]})[1]["x"][0]
    assert pickle.dumps(found) == pickle.dumps(saved)


def test_a_generator_goes_on_where_it_was(tmp_path):
    """By its state, a tree of numbers and texts."""
    rng, other = np.random.default_rng(3), np.random.default_rng(4)
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "rng": rng.bit_generator.state})
    other.bit_generator.state = checkpoints.restore(
        {"w": np.zeros(2), "rng": other.bit_generator.state}
    )[1]["rng"]
    np.testing.assert_array_equal(other.random(5), rng.random(5))


class Reader:
    """A callable object of the user's that counts."""

    def __init__(self):
        self.at = 3

    def __call__(self):
        return self.at


class Mode(enum.IntEnum):
    TRAIN = 1


@pytest.mark.core("Generator", "Reader")
@pytest.mark.parametrize(
    "leaf",
    [np.random.default_rng(0), np.random.RandomState(0), Reader(), {1, 2}, Mode.TRAIN],
    ids=lambda leaf: type(leaf).__name__,
)
def test_what_is_not_saved_is_named(tmp_path, leaf):
    """With its path, before a run begins with it or ends in it."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    says = rf"\['x'\]\[0\] is a {type(leaf).__name__}, which is not saved"
    with pytest.raises(jitney.JitneyError, match=says):
        checkpoints.save(1, {"w": np.ones(2), "x": [leaf]})
    with pytest.raises(jitney.JitneyError, match=says):
        checkpoints.restore({"w": np.ones(2), "x": [leaf]})


@pytest.mark.parametrize(
    "leaf",
    [
        jnp.tanh,
        jax.nn.relu,
        np.add,
        len,
        dict,
        np.dtype("f4"),
        jax.jit(jnp.sin),
        functools.partial(max, 0),
    ],
)
def test_code_is_that_of_the_tree(tmp_path, leaf):
    """It is what the program does, not what it has reached."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "x": leaf})
    assert checkpoints.restore({"w": np.ones(2), "x": leaf})[1]["x"] is leaf


@pytest.mark.parametrize(
    ("like", "says"),
    [
        (
            {"x": np.zeros(2)},
            r"\['x'\] is a value of Python in the checkpoint and float64 \[2\] in the tree",
        ),
        ({"x": None}, r"\['x'\] is only in the checkpoint"),
        ({"x": 1, "y": 2}, r"\['y'\] is only in the tree"),
    ],
)
def test_values_that_do_not_fit_are_named(tmp_path, like, says):
    """As arrays are."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "x": 3})
    with pytest.raises(jitney.JitneyError, match=says):
        checkpoints.restore({"w": np.ones(2), **like})


def rewritten(folder, change):
    """The JSON of a checkpoint, as `change` leaves it."""
    (file,) = (path for path in folder.rglob("metadata") if path.parent.name == "names")
    described = json.loads(file.read_text())
    change(described)
    file.write_text(json.dumps(described))


def test_a_checkpoint_without_values_says_so(tmp_path):
    """As jitney 0.2 wrote it: the arrays are restored, and a warning names what is the tree's."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "it": 7})
    rewritten(
        tmp_path, lambda described: [described.pop(name) for name in ("values", "values_checksum")]
    )
    with pytest.warns(
        jitney.JitneyWarning, match=r"step 1 was saved by an earlier jitney, without \['it'\]"
    ):
        _, found = checkpoints.restore({"w": np.zeros(2), "it": 0})
    assert (found["w"].sum(), found["it"]) == (2, 0)
    checkpoints.restore({"w": np.zeros(2)})  # nothing to say


def test_a_damaged_value_is_refused(tmp_path):
    """As a damaged array is."""
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(2), "it": 7})
    rewritten(tmp_path, lambda described: described["values"][0].__setitem__(2, "0x8"))
    with pytest.raises(jitney.JitneyError, match="numbers of Python are not those that were saved"):
        checkpoints.restore({"w": np.zeros(2), "it": 0})


def test_empty_arrays_are_restored(tmp_path):
    """Along a mesh, as keys and in NumPy, among others."""
    mesh = jitney.mesh(data=2, devices=jax.devices()[:2]).mesh
    tree = {
        "w": np.ones(2),
        "host": np.zeros((0, 3)),
        "keys": jax.random.split(jax.random.key(0), 2)[:0],
        "spread": jax.device_put(jnp.zeros((0, 4)), NamedSharding(mesh, P(None, "data"))),
    }
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    checkpoints.save(np.int64(1), tree)
    step, found = checkpoints.restore(tree, step=jnp.int32(1))
    assert type(step) is int
    for name, value in tree.items():
        assert (type(found[name]), found[name].dtype, found[name].shape) == (
            type(value),
            value.dtype,
            value.shape,
        )
    assert found["spread"].sharding.is_equivalent_to(tree["spread"].sharding, 2)
