"""Paths to a part of an argument, as options have them."""

import pytest

from jitney._signature.paths import stem_of, steps_of


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("x", ("x",)),
        ("model.layers[0].weight", ("model", "layers", "0", "weight")),
        ("params['layers'][0]['w']", ("params", "layers", "0", "w")),
        ('params["layers"]', ("params", "layers")),
        ("params.layers.0", ("params", "layers", "0")),
        ("params['a.b']", ("params", "a.b")),
        ("params['dense/~/w']", ("params", "dense/~/w")),
        ("params['']", ("params", "")),
        ("state[<flat index 0>]", ("state", "<flat index 0>")),
        (r"params['it\'s']", ("params", r"it\'s")),
    ],
)
def test_a_path_has_steps(path, steps):
    """Attributes, positions and keys."""
    assert steps_of(path) == steps


@pytest.mark.parametrize(
    "text", ["", ".x", "0", "x.", "x[", "x[]", "x y", "x['a]", "x.a b", "x..a"]
)
def test_other_text_is_not_a_path(text):
    """No step is left out in silence."""
    assert steps_of(text) is None


def test_the_stem_is_the_part_with_these_steps():
    """As the longer path writes it; a name that only begins alike is another one."""
    assert stem_of("params['layers'][0]['w']", ("params", "layers")) == "params['layers']"
    assert stem_of("model.head.weight", ("model", "head")) == "model.head"
    assert stem_of("model.head", ("model", "head")) == "model.head"
    assert stem_of("model.header", ("model", "head")) is None
    assert stem_of("model.head", ("model", "head", "weight")) is None
    assert stem_of("x[('a', 1)].w", ("x",)) == "x"
