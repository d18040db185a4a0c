"""What the user may ask for: everything else is refused at decoration, with where, the rule and the
fix.
"""

import ast
import dataclasses
import functools
import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._body.plain import changes_of
from jitney._signature.options import (
    EQUAL,
    NAMES,
    OPTIONS,
    PRECISIONS,
    CompileLimit,
    OptionKeywords,
    Options,
    VmapAxis,
    read_options,
    script_texts,
)
from jitney._signature.policies import POLICIES
from jitney.errors import OptionError
from tests import option_texts


def body(x: Float[Array, "n"], y, *, scale: float = 1.0):
    return x


def keyed(x, **more):
    return x


LINE = f"body() at test_options.py:{body.__code__.co_firstlineno}"

REFUSED = [
    # Unknown.
    ({"vmapp": "batch"}, "unknown option 'vmapp'.", "did you mean 'vmap'?"),
    ({"zzz": 1}, "unknown option 'zzz'.", "leave it out."),
    ({"accumulate": True}, "unknown option 'accumulate'.", "leave it out."),
    ({"disabled": "jit"}, "unknown option 'disabled'.", "leave it out."),
    # Not built yet.
    (
        {"chunk": "n"},
        "chunk='n' does not say which axis is cut into chunks of what size.",
        "write chunk={",
    ),
    (
        {"shard": "n"},
        "shard='n' does not say which axis is sharded over which axis of the mesh.",
        'write shard={"batch": "data"}',
    ),
    ({"shard": {}}, "shard={} does not say", 'write shard={"batch": "data"}'),
    ({"shard": {"n": 3}}, "shard={'n': 3} does not say", 'write shard={"batch": "data"}'),
    (
        {"shard": {"n": "data"}, "mesh": ("x", 4)},
        "mesh=('x', 4) is not a mesh.",
        "write mesh=jitney.mesh(data=4)",
    ),
    (
        {"mesh": jitney.mesh(data=1)},
        "`mesh` is given, and `shard` is not.",
        'say which: shard={"batch": "data"}',
    ),
    (
        {"chunk": {"n": 4}, "memory": "1GB"},
        "`memory` chooses the size of chunks, and chunk={'n': 4} says it already.",
        "write chunk={",
    ),
    (
        {"pad": {"n": "pow2"}, "memory": "1GB"},
        "`pad` and `memory` together are not supported yet.",
        "keep one",
    ),
    ({"max_compiles": 0}, "max_compiles=0 is not a limit.", "write max_compiles=3"),
    ({"max_compiles": True}, "max_compiles=True is not a limit.", "write max_compiles=3"),
    ({"max_compiles": "stop:3"}, "max_compiles='stop:3' is not a limit.", '"raise:3"'),
    ({"cache": "programs"}, "cache='programs' is not a choice.", "write cache=True"),
    ({"precision": "bf17"}, "precision='bf17' is not a policy", "choose one"),
    (
        {"precision": {"head": "f64"}},
        "precision={'head': 'f64'} does not say which products",
        'write precision={"default": "bf16"',
    ),
    (
        {"precision": "bf16", "on_trace_error": "eager"},
        "contradict each other",
        'write precision="bf16-all"',
    ),
    (
        {"chunk": {"n": "fast"}},
        'chunk="fast" is of an axis that is not the outermost of `vmap`.',
        'give a size, or "auto".',
    ),
    (
        {"chunk": {"b": "fast"}, "vmap": "b", "donate": "x"},
        'chunk="fast" and `donate` together are not supported yet.',
        "give a size, or leave out the other.",
    ),
    ({"auto": "always"}, "auto='always' is not a choice.", "write auto=True"),
    ({"auto": 1}, "auto=1 is not a choice.", "write auto=True"),
    ({"workers": 0}, "workers=0 is not a number of threads.", "write workers=2"),
    ({"workers": True}, "workers=True is not a number of threads.", "write workers=2"),
    ({"workers": "all"}, "workers='all' is not a number of threads.", 'workers="auto"'),
    ({"workers": 2}, "`workers` is given, and `vmap` is not.", 'write vmap="batch" with it'),
    (
        {"workers": 2, "vmap": "b", "chunk": {"n": 4}},
        "`workers` and a chunk of 'n', which the signature has, together",
        "`shard` divides such an axis",
    ),
    (
        {"workers": 2, "vmap": "b", "donate": "x"},
        "`workers` and `donate` contradict each other.",
        "keep one",
    ),
    (
        {"workers": 2, "vmap": "b", "pad": {"n": "pow2"}},
        "`workers` and `pad` together are not supported yet.",
        "keep one",
    ),
    (
        {"workers": 2, "vmap": "b", "memory": "1GB"},
        "`workers` and `memory` together are not supported yet.",
        "keep one",
    ),
    (
        {"workers": 2, "vmap": "b", "shard": {"n": "data"}},
        "`workers` and `shard` together are not supported yet.",
        "keep one",
    ),
    (
        {"workers": 2, "vmap": "b", "precision": "auto:1e-2"},
        "together are not supported yet.",
        "keep one",
    ),
    # Malformed.
    ({"static": 0}, "static=0 does not name parameters.", 'write static="x"'),
    ({"static": ""}, "static='' does not name parameters.", 'write static="x"'),
    ({"static": "x y"}, "static='x y' does not name parameters.", 'write static="x"'),
    ({"static": {"y"}}, "static={'y'} does not name parameters.", 'write static="x"'),
    ({"static": ("y", 1)}, "static=('y', 1) does not name parameters.", 'write static="x"'),
    ({"static": ("y", "y")}, "static=('y', 'y') names a parameter twice.", "drop the repetition."),
    ({"donate": True}, "donate=True does not name parameters.", 'write donate="x"'),
    ({"donate": ["x", "x"]}, "donate=['x', 'x'] names a parameter twice.", "drop the repetition."),
    ({"vmap": 0}, "vmap=0 does not name an axis.", 'write vmap="batch"'),
    ({"vmap": ""}, "vmap='' does not name an axis.", 'write vmap="batch"'),
    ({"vmap": "a b"}, "vmap='a b' does not name an axis.", 'write vmap="batch"'),
    ({"vmap": ("a", "b")}, "vmap=('a', 'b') does not name an axis.", 'write vmap="batch"'),
    ({"vmap": {}}, "vmap={} does not name an axis.", 'write vmap="batch"'),
    ({"vmap": {1: {"x": 0}}}, "vmap={1: {'x': 0}} does not name an axis.", 'write vmap="batch"'),
    (
        {"vmap": {f"b{i}": {"x": 0} for i in range(9)}},
        "does not name an axis.",
        'write vmap="batch"',
    ),
    (
        {"vmap": {"b": 0}},
        "does not say which argument has axis 'b' where.",
        'write vmap={"b": {"x": 0}}.',
    ),
    (
        {"vmap": {"b": {}}},
        "does not say which argument has axis 'b' where.",
        'write vmap={"b": {"x": 0}}.',
    ),
    (
        {"vmap": {"b": {"x": True}}},
        "does not say which argument has axis 'b' where.",
        'write vmap={"b": {"x": 0}}.',
    ),
    (
        {"vmap": {"b": {"x": None}}},
        "does not say which argument has axis 'b' where.",
        'write vmap={"b": {"x": 0}}.',
    ),
    (
        {"vmap": {"b": {0: 0}}},
        "does not say which argument has axis 'b' where.",
        'write vmap={"b": {"x": 0}}.',
    ),
    (
        {"pad": "n"},
        "pad='n' does not say which axis is padded to what.",
        'write pad={"points": "pow2"}.',
    ),
    (
        {"pad": {}},
        "pad={} does not say which axis is padded to what.",
        'write pad={"points": "pow2"}.',
    ),
    (
        {"pad": {"n m": "pow2"}},
        "does not say which axis is padded to what.",
        'write pad={"points": "pow2"}.',
    ),
    ({"pad": {"n": "pow3"}}, "pad={'n': 'pow3'}: ladder='pow3' is neither", "choose one of these."),
    ({"pad": {"n": 5}}, "pad={'n': 5}: ", "choose one of these."),
    ({"pad": {"n": [0, 4]}}, "pad={'n': [0, 4]}: ", "choose one of these."),
    (
        {"remat": "dots"},
        "remat='dots' is not a policy that a name alone can choose.",
        "choose one of these",
    ),
    (
        {"remat": "save_only_these_names"},
        "remat=save_only_these_names is no policy, but makes one.",
        'call it: remat=jax.checkpoint_policies.save_only_these_names("name").',
    ),
    ({"roll": True}, "roll=True does not say what is rolled", 'write roll="auto"'),
    ({"remat": 1}, "remat=1 is not a policy", "choose one of these"),
    ({"static_argnames": ("n",)}, "unknown option 'static_argnames'", 'write static="name"'),
    (
        {"static_argnums": 1},
        "unknown option 'static_argnums'",
        'write static="name", by name instead of position',
    ),
    (
        {"donate_argnums": 0},
        "unknown option 'donate_argnums'",
        'write donate="name", by name instead of position',
    ),
    ({"donate_argnames": "x"}, "unknown option 'donate_argnames'", 'write donate="name"'),
    ({"in_axes": 0}, "unknown option 'in_axes'", 'write vmap="batch"'),
    ({"precision": "float32"}, "precision='float32' is not a policy.", "choose one."),
    ({"precision": jnp.float32}, "is not a policy.", "choose one."),
    ({"precision": ["f32"]}, "precision=['f32'] is not a policy.", "choose one."),
    ({"cache": "disk"}, "cache='disk' is not a choice.", "write cache=True."),
    ({"cache": None}, "cache=None is not a choice.", "write cache=True."),
    ({"contracts": 1}, "contracts=1 is neither True nor False.", "write contracts=True."),
    (
        {"debug_nans": "yes"},
        "debug_nans='yes' is neither True nor False.",
        "write debug_nans=True.",
    ),
    ({"on_trace_error": "warn"}, "on_trace_error='warn' is not a choice.", "choose one."),
    ({"on_compile_error": "chunk"}, "on_compile_error='chunk' is not a choice.", "choose one."),
    ({"on_memory_error": True}, "on_memory_error=True is not a choice.", "choose one."),
    ({"compiler": "O3"}, "compiler='O3' is not a choice.", "choose one."),
    ({"compiler": 3}, "compiler=3 is not a choice.", "choose one."),
    # Contradictory.
    (
        {"static": "x", "donate": "x"},
        "'x' cannot be static and donated.",
        "name it in one of the two options.",
    ),
    (
        {"static": ("y", "x"), "donate": ["x", "y"]},
        "'x', 'y' cannot be static and donated.",
        "name it in one of the two options.",
    ),
    (
        {"static": "x", "vmap": {"b": {"x": 0}}},
        "'x' cannot be static and mapped.",
        "name it in one of the two options.",
    ),
    (
        {"pad": {"n": "pow2"}, "contracts": False},
        "`pad` and contracts=False contradict each other.",
        "drop contracts=False.",
    ),
]
AGAINST_THE_SIGNATURE = [
    ({"static": "z"}, "`static` names 'z', which is not a parameter.", "correct the name."),
    ({"donate": "z"}, "`donate` names 'z', which is not a parameter.", "correct the name."),
    ({"vmap": {"b": {"z": 0}}}, "`vmap` names 'z', which is not a parameter.", "correct the name."),
    (
        {"vmap": "n"},
        "vmap='n' names an axis that the signature has already.",
        "drop 'n' from the annotations",
    ),
    (
        {"vmap": {"n": {"x": 0}}},
        "vmap='n' names an axis that the signature has already.",
        "drop 'n' from the annotations",
    ),
]


def text_of(options):
    return ", ".join(f"{name}={value!r}" for name, value in options.items())[:60]


@pytest.mark.parametrize(
    ("options", "what", "fix"), REFUSED, ids=[text_of(case[0]) for case in REFUSED]
)
def test_a_bad_option_is_refused_above_the_function(options, what, fix):
    """Three lines: where and what, the rule, the fix; with options alone already, before there is a
    function.
    """
    for decorate, where in (
        (lambda: optimize(**options), "optimize()"),
        (lambda: optimize(body, **options), LINE),
    ):
        with pytest.raises(OptionError) as caught:
            decorate()
        first, rule, last = str(caught.value).splitlines()
        assert first.startswith(f"{where}: ")
        assert what in first
        assert rule.endswith(".")
        assert last.startswith("Fix: ")
        assert fix in last


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    AGAINST_THE_SIGNATURE,
    ids=[text_of(case[0]) for case in AGAINST_THE_SIGNATURE],
)
def test_an_option_against_the_signature_is_refused_at_decoration(options, what, fix):
    """The function, file and line are named; nothing waits for the first call."""
    with pytest.raises(OptionError) as caught:
        optimize(**options)(body)
    first, _, last = str(caught.value).splitlines()
    assert first == f"{LINE}: {what}"
    assert fix in last


@pytest.mark.parametrize("options", [{"pad": {"m": "pow2"}}, {"chunk": {"m": 2}}], ids=text_of)
def test_an_axis_that_no_argument_can_have_is_refused_at_decoration(options):
    """Each is annotated with an array or a static value."""

    def closed(x: Float[Array, "n"], k: int, order=2):
        return x

    with pytest.raises(
        OptionError, match=r"names 'm', which is not an axis(.|\n)*correct the name"
    ):
        optimize(**options)(closed)


@pytest.mark.parametrize("options", [{"pad": {"m": "pow2"}}, {"chunk": {"m": 2}}], ids=text_of)
def test_an_axis_that_an_argument_may_have_is_refused_at_its_first_call(options):
    """`y` has no annotation, and could be an instance of a class that names the axis."""
    f = optimize(**options)(body)
    with pytest.raises(OptionError) as caught:
        f(jnp.ones(3), jnp.ones(3))
    first, _, last = str(caught.value).splitlines()[:3]
    assert first.startswith(f"{LINE}: `{next(iter(options))}` names 'm', which is not an axis.")
    assert "correct the name." in last


def test_the_rank_rule_needs_an_annotation_with_a_rank():
    """Nothing would ever be mapped, which is not what was asked for."""
    with pytest.raises(OptionError, match="vmap='batch' has no annotation to go by"):
        optimize(vmap="batch")(lambda x, n: x)
    optimize(vmap={"batch": {"x": 0}})(lambda x, n: x)


def test_names_among_keyword_arguments_cannot_be_known_at_decoration():
    """`**more` takes any name."""
    optimize(static="anything", donate="other")(keyed)


def test_what_is_no_function_is_refused():
    """`@optimize("x")` for `@optimize(static="x")`."""
    with pytest.raises(OptionError, match="'x' is not callable"):
        optimize("x")


@pytest.mark.parametrize(
    "fn",
    [
        np.sin,
        functools.partial(np.add, 1.0),
        jax.tree_util.Partial(np.log1p),
        np.frompyfunc(abs, 1, 1),
    ],
)
def test_a_ufunc_of_numpys_is_refused_at_decoration(fn):
    """It wants the values of its arguments, and its signature names arguments that exclude each
    other.
    """
    with pytest.raises(
        OptionError,
        match=(
            r"is a ufunc of NumPy's kind[\s\S]*Fix: decorate the function of that name in"
            r" `jax.numpy`"
        ),
    ):
        optimize(fn)


def test_a_limit_says_what_happens_past_it():
    """It warns unless it is said."""
    limits = [
        read_options("f()", {"max_compiles": limit}).max_compiles
        for limit in (None, 3, "warn:3", "raise:12", "eager:1")
    ]
    assert limits == [
        None,
        CompileLimit(3, "warn"),
        CompileLimit(3, "warn"),
        CompileLimit(12, "raise"),
        CompileLimit(1, "eager"),
    ]


def test_an_error_of_an_option_is_a_value_error():
    """So that code which knows nothing of jitney can catch it."""
    assert issubclass(OptionError, ValueError)
    assert issubclass(OptionError, jitney.JitneyError)


def test_spellings_of_one_option_are_equal():
    """One name or a list of one, False or nothing, True or the policy that it means: the same
    options share programs.
    """
    for one, other in (
        ({"static": "x"}, {"static": ["x"]}),
        ({"donate": ("x", "y")}, {"donate": ["x", "y"]}),
        ({"remat": False}, {"remat": None}),
        ({"remat": True}, {"remat": "nothing_saveable"}),
        ({"vmap": None, "pad": None, "static": None, "precision": None}, {}),
        ({"static": ()}, {}),
    ):
        assert read_options("f()", one) == read_options("f()", other)
        assert hash(read_options("f()", one)) == hash(read_options("f()", other))


def test_options_are_read_into_what_they_mean():
    """Axes in their order, names as tuples."""
    options = read_options(
        "f()", {"vmap": {"b": {"x": 0, "y": -1}, "c": {"x": 1}}, "static": "k", "precision": "f64"}
    )
    assert options.vmap == (VmapAxis("b", (("x", 0), ("y", -1))), VmapAxis("c", (("x", 1),)))
    assert (options.static, options.precision, options.cache, options.contracts) == (
        ("k",),
        "f64",
        True,
        True,
    )
    assert read_options("f()", {"vmap": "batch"}).vmap == (VmapAxis("batch"),)


def test_every_policy_and_precision_that_is_listed_is_taken():
    """What a message offers must work."""
    for policy in POLICIES:
        assert read_options("f()", {"remat": policy}).remat == policy
    for precision in PRECISIONS:
        assert read_options("f()", {"precision": precision}).precision == precision


def test_the_signature_of_optimize_names_every_option():
    """The overloads, which editors show, take the keys of the table of options."""
    shown = [inspect.signature(overload).parameters for overload in typing.get_overloads(optimize)]
    for parameters in shown[1:]:
        assert parameters["options"].annotation == "Unpack[OptionKeywords]"
    assert [*typing.get_type_hints(OptionKeywords)] == list(NAMES)


def test_every_default_may_be_written():
    """The page of the API shows it, and None in place of no names or axes."""
    defaults = {name: getattr(Options(), name) for name in NAMES}
    given = {name: None if value == () else value for name, value in defaults.items()}
    assert read_options("f()", given) == Options()


def test_help_and_the_page_say_what_the_table_says():
    """`python -m tests.option_texts` writes both."""
    for file, text in option_texts.written().items():
        assert file.read_text() == text, f"{file.name}: run `python -m tests.option_texts`"


def test_one_file_names_every_option():
    """So a new option needs no other, but where something acts on it."""
    source = option_texts.ROOT / "src" / "jitney"
    every = {file for file in source.rglob("*.py") if names_in(file) >= {*NAMES}}
    assert every == {option_texts.TABLE}


def names_in(file):
    """Identifiers and words of a file, without those in longer texts."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    found = [getattr(node, of, None) for node in nodes for of in ("id", "attr", "arg", "value")]
    return {name for name in found if isinstance(name, str)}


def test_options_cannot_be_changed():
    """They are part of what programs are shared by."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        optimize(body).options.cache = False


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"static": "k", "donate": "x", "vmap": "b"}, []),
        ({"precision": "f64", "verify": True, "debug_nans": True}, []),
        ({"pad": {"n": "pow2", "m": [8]}}, ["pad over 'n' and 'm'"]),
        ({"chunk": {"n": "auto"}, "memory": "1GB"}, ["chunk over 'n'"]),
        ({"memory": "1GB"}, ["memory"]),
        ({"on_memory_error": "chunk"}, ["memory"]),
        ({"shard": {"n": "data"}, "remat": "dots_saveable"}, ["remat", "shard over 'n'"]),
        ({"vmap": "b", "workers": 2}, ["workers over 'b'"]),
        ({"roll": "auto", "compiler": "default"}, ["roll"]),
        ({"compiler": {"xla_backend_optimization_level": 1}}, ["compiler"]),
        ({"precision": "bf16"}, ["precision=bf16"]),
        ({"precision": "bf16-all"}, ["precision=bf16-all"]),
        ({"precision": "auto:1e-2"}, ["precision=bf16"]),
    ],
)
def test_options_say_what_they_may_change(options, expected):
    """`verify` compares where an option may change the computation, by the option's own line."""
    assert [str(each) for each in changes_of(read_options("f", options), None)] == expected


def test_an_option_that_rounds_says_what_it_changes():
    """A tolerance without a change would never be used."""
    rounds = {name for name, each in OPTIONS.items() if each.tolerance != EQUAL}
    changes = {name for name, each in OPTIONS.items() if each.changes.__name__ != "_nothing"}
    assert changes == {*rounds, "precision"}


@pytest.mark.parametrize(
    "given",
    [
        {"static": ("a", "b"), "contracts": False},
        {"vmap": {"rows": {"x": 0}, "columns": {"x": 1, "y": None}}},
        {"pad": {"n": "pow2", "m": [3, 5]}},
        {"chunk": {"n": 7}, "remat": "dots_saveable"},
        {"memory": "2GiB", "roll": "auto", "compiler": "fast"},
        {"precision": {"head": "bf16"}, "compiler": {"xla_backend_optimization_level": 1}},
    ],
)
def test_the_text_of_options_in_a_script_reads_back_as_the_same(given):
    """A script that shows a difference runs the program that had it."""
    options = read_options("f", given)
    names = {"jitney": jitney}
    again = {name: eval(text, names) for name, text in script_texts(options).items()}
    assert read_options("f", again) == options
