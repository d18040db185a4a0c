"""What stands where something else was exported is a sentence: foreign files, and orders, fields
and kinds that a program does not know.
"""

import json
import os
import subprocess
import sys
import types
from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jitney
from jitney._export import container
from jitney.errors import ContractError, DerivativeError, ExportError
from tests._arrays import array
from tests._patience import patience

from ._models import decay, saved

X = array(np.arange(1.0, 7.0))


def test_the_order_of_an_ordered_dict_is_a_part_of_the_program(tmp_path):
    """JAX keeps it, and a body may read it; that of a dict it sorts."""

    def first(tree):
        return next(iter(tree.values()))

    loaded = saved(tmp_path, jitney.optimize(first), OrderedDict(a=X, b=-X))
    np.testing.assert_array_equal(loaded(OrderedDict(a=X, b=-X)), X)
    with pytest.raises(ContractError, match=r"an OrderedDict of \['a', 'b'\], in that order"):
        loaded(OrderedDict(b=-X, a=X))
    np.testing.assert_array_equal(
        saved(tmp_path, jitney.optimize(first), {"a": X, "b": -X})({"b": -X, "a": X}), X
    )


def _scaled(by):
    """A module of that name, which cannot be imported, with or without a second field."""
    if by is None:

        class Local(eqx.Module):
            w: Array

        return Local(X)

    class Local(eqx.Module):
        w: Array
        by: float = eqx.field(static=True)

    return Local(X, by)


def test_a_field_that_was_not_exported_is_not_left_out(tmp_path, monkeypatch):
    """Of an argument whose class has it by now, and of a class that can be imported."""
    loaded = saved(tmp_path, jitney.optimize(lambda m: m.w * getattr(m, "by", 1.0)), _scaled(None))
    np.testing.assert_array_equal(loaded(_scaled(None)), X)
    with pytest.raises(ContractError, match="or a dict of w there"):
        loaded(_scaled(2.0))
    here, made = types.ModuleType("of_this_test"), _scaled(2.0)
    monkeypatch.setitem(sys.modules, "of_this_test", here)
    for cls in (type(_scaled(None)), type(made)):
        cls.__module__, cls.__qualname__, here.Local = "of_this_test", "Local", cls
        if cls is not type(made):
            jitney.optimize(lambda m: m.w).export(tmp_path / "f.jitney", cls(X))
    with pytest.raises(ExportError, match=r"of_this_test\.Local has other fields"):
        jitney.load(tmp_path / "f.jitney")


CHECKED = """
import sys, equinox as eqx, numpy as np, jitney
loaded = jitney.load(sys.argv[1])
try:
    loaded(-np.ones(3, np.float32))
except eqx.EquinoxRuntimeError as error:
    print("must not be negative" in str(error))
"""


@pytest.mark.rest
def test_a_check_of_a_file_raises_whatever_eqx_on_error_is(tmp_path):
    """The program holds it, and what it gives behind it is wrong."""
    f = jitney.optimize(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative"))
    f.export(tmp_path / "f.jitney", jnp.ones(3))
    env = {**os.environ, "EQX_ON_ERROR": "nan", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", CHECKED, str(tmp_path / "f.jitney")]
    done = subprocess.run(
        command, text=True, capture_output=True, env=env, timeout=patience(120), check=False
    )
    assert done.stdout == "True\n", done.stderr


def _changed(tmp_path, change):
    """A file with another header, whose digest is right."""
    path = tmp_path / "f.jitney"
    jitney.optimize(lambda m, x: {"r": m(x)}).export(path, decay(), X)
    content = container.read(path)
    header, members = json.loads(json.dumps(content.header)), dict(content.members)
    change(header, members)
    container.write(path, header, members, "f")
    return path


def _tree(header):
    return header["programs"][0]["result"]


@pytest.mark.parametrize(
    "change",
    [
        lambda header, _: header.clear(),
        lambda header, _: header.update(programs=[]),
        lambda header, _: header.update(arguments=[]),
        lambda header, _: header["contract"].update(where=["f"]),
        lambda header, _: header["contract"]["parameters"][0].update(kind="ANY"),
        lambda header, _: header["contract"]["parameters"][0].update(default=["int", "x"]),
        lambda header, _: header["programs"][0].update(symbols={"d0": 2}),
        lambda header, _: _tree(header).update({"is": "what"}),
        lambda header, _: _tree(header)["items"][0][1].update(number=7),
        lambda header, _: _tree(header)["items"][0].pop(),
        lambda header, _: header["programs"][0]["results"][0].update(dtype="int32"),
        lambda header, _: header["programs"][0].update(checks=[["never"]]),
        lambda _, members: members.update({"program 0": b""}),
        lambda _, members: members.update({"program 0": bytes(99)}),
        lambda _, members: members.clear(),
    ],
)
def test_a_file_that_somebody_else_wrote_is_a_sentence(tmp_path, change):
    """Its digest is right; something in it is not what jitney writes."""
    path = _changed(tmp_path, change)
    with pytest.raises(ExportError, match="Fix: export it again"):
        jitney.load(path)(decay(), X)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"members": [["a", -1], ["b", 1]]}',
        b'{"members": "ab"}',
    ],
)
def test_a_header_that_is_no_json_is_a_sentence(tmp_path, monkeypatch, head):
    """Or one without members, or with lengths that are none."""
    monkeypatch.setattr(
        container.json, "dumps", lambda *_, **__: types.SimpleNamespace(encode=lambda: head)
    )
    container.write(tmp_path / "f.jitney", {}, {}, "f")
    with pytest.raises(ExportError, match=r"jitney\.load"):
        jitney.load(tmp_path / "f.jitney")


@pytest.mark.parametrize("file", ["", "a\0b", "/"])
def test_what_names_no_file_is_a_sentence(file):
    """When it is written and when it is read."""
    for use in (lambda: jitney.optimize(jnp.sin).export(file, X), lambda: jitney.load(file)):
        with pytest.raises(ExportError, match="names no file"):
            use()


@pytest.mark.parametrize(
    "value",
    [np.zeros(2, [("a", float)]), np.array(["a"]), np.dtype([("a", "f4")])],
    ids=lambda v: str(type(v)),
)
def test_static_values_without_data_are_a_sentence(tmp_path, value):
    """Records and texts of numpy, as arrays and as types."""
    with pytest.raises(ExportError, match="'how' is or holds"):
        jitney.optimize(static="how")(lambda x, how: x).export(tmp_path / "f.jitney", X, value)


def test_what_has_no_derivative_is_not_exported_with_one(tmp_path):
    """A loop of unknown length has none backwards."""
    f = jitney.optimize(lambda x: jax.lax.while_loop(lambda v: v[0] < 5, lambda v: v * 2, x))
    with pytest.raises(ExportError, match="Reverse-mode"):
        f.export(tmp_path / "f.jitney", X, vjp_order=1)


@pytest.mark.parametrize("order", [0, 1])
def test_forward_mode_is_a_sentence(tmp_path, order):
    """JAX has no rule for an exported program."""
    loaded = saved(tmp_path, jitney.optimize(lambda x: jnp.sum(x**2)), X, vjp_order=order)
    with pytest.raises(DerivativeError, match="forward mode"):
        jax.jvp(loaded, (X,), (X,))


def test_a_shape_is_no_array(tmp_path):
    """What stands for an array when a program is exported has no values to call it with."""
    stand_in = jax.ShapeDtypeStruct(X.shape, X.dtype)
    with pytest.raises(
        ContractError,
        match="'x' is a ShapeDtypeStruct, and the exported program takes an array there",
    ):
        saved(tmp_path, jitney.optimize(lambda x: x), stand_in)(stand_in)


def test_late_checks_are_left_behind(tmp_path):
    """A loaded program waits, and its plan does not say that a later call raises."""
    loaded = saved(
        tmp_path,
        jitney.optimize(lambda x: eqx.error_if(x, x[0] < 0, "negative"), runtime_checks="later"),
        X,
    )
    assert "left behind: runtime_checks: a loaded program waits" in loaded.plan
    assert "a later call raises" not in loaded.plan
    with pytest.raises(eqx.EquinoxRuntimeError, match="negative"):
        loaded(-X)
