"""What is asked for by name is read like what is written behind a dot, or nothing is kept."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import jax
import jax.numpy as jnp
import jitney
import lab_helper as helper


class Held:
    __slots__ = ("name", "other")

    def __init__(self, name):
        self.name = name


class Layer:
    of_class = {of_class}

    def __init__(self):
        self.size = {of_instance}
        self.held = Held("size")

    def __getattr__(self, name):
        rule = getattr(type(self), "rule", None)
        return rule(self)

    def rule(self):
        return {of_rule}

    def asked(self, name):
        return getattr(self, name)


layer = Layer()
names = ["of_module", "deeper"]
activation = "{activation}"


def called(x):
    numbers = [getattr(helper, name) for name in names]
    numbers += [getattr(layer, layer.held.name), layer.asked("of_class"), getattr(layer, "missing", 0.0), getattr(helper, "written")]
    numbers += [getattr(helper, "not_there", 4.0), 2.0 if hasattr(helper, "there") else 1.0, getattr(layer.held, "other", 3.0)]
    return jax.tree.reduce(jnp.add, [getattr(jnp, activation)(x) * n for n in numbers])


program = jitney.optimize(cache="program")(called)
"""
HELPER = (
    "of_module = {of_module}\ndeeper = {deeper}\nwritten = {written}\nunrelated ="
    " {unrelated}\n{more}\n"
)
FILLED = {
    "of_class": 1.5,
    "of_instance": 2.5,
    "of_rule": 3.5,
    "of_module": 4.5,
    "deeper": 5.5,
    "written": 6.5,
    "unrelated": 7.5,
}
WORDS = {"activation": "tanh", "more": ""}
EDITS = [
    *({name: FILLED[name] + 1} for name in FILLED if name != "unrelated"),
    {"activation": "sin"},
    {"more": "there = 1"},
    {"more": "not_there = 9.0"},
    {"more": "deeper = 8.5"},
]


def run(folder, numbers):
    """What a process gives, and what it says of keeping."""
    filled = {name: str(value) for name, value in numbers.items()}
    lab.write(
        folder, {"lab_main.py": TEXT.format(**filled), "lab_helper.py": HELPER.format(**filled)}
    )
    x = jnp.ones(2)
    with lab.process(folder) as main:
        np.testing.assert_allclose(main.program(x), main.called(x), rtol=1e-6)
        return lab.notes(main.program)


@pytest.mark.core("3")
@pytest.mark.parametrize("edit", range(len(EDITS)))
def test_what_is_looked_up_by_name_is_asked_for_again(folder, tmp_path, edit):
    """In an object, a slot, a class, a module of the user's, or one of JAX; the edited number is
    the one that is computed with.
    """
    before = {**FILLED, **WORDS}
    assert run(tmp_path, before) == KEPT
    assert run(tmp_path, {**before, "unrelated": 9.0}) == FOUND
    [(_, why)] = run(tmp_path, {**before, **EDITS[edit]})
    assert "found" not in why


@pytest.mark.core(
    "x * getattr(helper, name.upper())-*",
    "x * getattr(lazy, word)*",
    "x * getattr(jax.vmap,*",
    "x * [getattr*",
)
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x * getattr(helper, name.upper())", "uses `getattr`"),
        ("x * list(map(getattr, [helper], [name]))[0]", "uses `getattr`"),
        ("x * getattr(lazy, word).co_argcount + x", "asks for `__code__`"),
        ("x * getattr(lazy(), name)", "uses `getattr`"),
        ("x * getattr(jax.vmap, name, 2.0)", "known by name alone"),
        ("x * (lambda ask=getattr: ask(helper, name))()", "uses `getattr`"),
        ("x * [getattr(helper, name) for helper.K in (2.0,)][0]", "changes what it reads"),
    ],
)
def test_where_nobody_sees_what_is_asked_for_nothing_is_kept(folder, tmp_path, line, why):
    """And the plan says so."""
    text = f"""
    import jax
    import jax.numpy as jnp
    import jitney
    import lab_helper as helper

    name, word = "K", "__code__"


    def lazy():
        return helper


    def called(x):
        return {line}


    program = jitney.optimize(cache="program")(called)
    """
    lab.write(tmp_path, {"lab_main.py": text, "lab_helper.py": "K = 1.5\n"})
    with lab.process(tmp_path) as main:
        main.program(jnp.ones(2))
        [(is_kept, said)] = lab.notes(main.program)
        assert not is_kept
        assert why in said


OWN = {
    "__getattribute__": "lambda self, name: 2.0",
    "__class__": "property(lambda self: int)",
    "__dict__": "property(lambda self: {})",
}


@pytest.mark.parametrize(
    ("of", "name"), [*(("an instance", name) for name in OWN), ("a class", "__getattribute__")]
)
def test_what_answers_for_itself_is_not_kept(folder, tmp_path, of, name):
    """Nobody sees what it holds; the answer is never an error of jitney's, and the plan says which
    name it is.
    """
    base = "type" if of == "a class" else "object"
    made = "C('D', (), {})" if of == "a class" else "C()"
    text = f"""
import jitney

C = type("C", ({base},), {{"{name}": {OWN[name]}}})
HELD = {made}


def called(x):
    return x * 2.0 if HELD is not None else x


program = jitney.optimize(cache="program")(called)
"""
    lab.write(tmp_path, {"lab_main.py": text})
    with lab.process(tmp_path) as main:
        np.testing.assert_array_equal(main.program(jnp.ones(2)), np.full(2, 2.0))
        [(kept, why)] = lab.notes(main.program)
    assert not kept
    assert f"a `{name}` of its own" in why
