"""What a type hint is read as."""

import collections.abc
import enum
import functools
import re
import sys
import typing
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest
from jaxtyping import (
    Array,
    ArrayLike,
    Bool,
    Float,
    Float32,
    Int,
    Key,
    PRNGKeyArray,
    PyTree,
    Scalar,
    ScalarLike,
    Shaped,
)

from jitney import JitneyWarning, optimize
from jitney._signature.annotations import fields_of, hints_of
from jitney._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
)
from jitney._signature.type_hints import read
from tests._arrays import array, random_key


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: Float[Array, "n"]
    rest: "Point | None" = None


class Record(TypedDict):
    x: Float[Array, "n"]
    label: str


class Linear(eqx.Module):
    weight: "Float[Array, 'out in']"
    bias: Float[Array, "out"] | None

    def __call__(self, x: "Float[Array, 'in']") -> "Float[Array, 'out']":
        return self.weight @ x

    def clone(self, other: "Linear") -> "Linear":
        return other


class Scaled(Linear):
    scale: float


def test_each_token_of_a_shape_is_read():
    """Named, fixed, symbolic and anonymous axes with their marks."""
    dims = read(Float[Array, "n 3 rows=4 n+1 _ _k #m *b"]).dims
    kinds = ["named", "fixed", "fixed", "symbolic", "anonymous", "anonymous", "named", "named"]
    assert [dim.kind for dim in dims] == kinds
    assert [dim.name for dim in dims] == ["n", None, None, None, None, None, "m", "b"]
    assert [dim.size for dim in dims[1:3]] == [3, 4]
    assert dims[3].expr == "n+1"
    assert (dims[6].broadcast, dims[7].variadic) == (True, True)


@pytest.mark.parametrize(
    ("dims", "rank"), [("", 0), ("n m", 2), ("...", None), ("a *b", None), ("_", 1)]
)
def test_rank_is_open_only_under_a_variadic_axis(dims, rank):
    """`*b` and `...` stand for any number of axes."""
    assert read(Float[Array, dims]).rank == rank


def test_names_are_bound_and_mentions_are_used():
    """`n+1` binds nothing; braces hold arguments, not axes; `min` is a function."""
    hint = read(Float[Array, "*b n n min(n,m)+{self.k}"])
    assert hint.names == ("b", "n")
    assert set(hint.mentions) == {"n", "m"}


def test_axes_of_nested_annotations_come_outer_first():
    """jaxtyping puts the axes of the outer annotation before those of the inner one."""
    assert read(Float[Float[Array, "n"], "batch"]).names == ("batch", "n")


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("Float", 1.0),
        ("Inexact", 1.0),
        ("Num", 1.0),
        ("Real", 1.0),
        ("Int", 1),
        ("Integer", 1),
        ("Complex", 1j),
        ("Bool", True),
    ],
)
def test_default_dtype_is_the_one_jax_makes(name, make, x64):
    """`Float` is float32 or float64 by the x64 setting, as `jnp.asarray(1.0)` is."""
    with jax.enable_x64(x64):
        assert read(getattr(jaxtyping, name)[Array, "n"]).default_dtype() == jnp.asarray(make).dtype


@pytest.mark.parametrize("name", ["Shaped", "Key"])
def test_default_dtype_is_unknown_where_the_hint_leaves_it_open(name):
    """Nothing says which dtype a `Shaped` array or a key has."""
    assert read(getattr(jaxtyping, name)[Array, ""]).default_dtype() is None


def test_exact_dtype_needs_exactly_one_dtype():
    """`Float32` has one, `Float` has many, `Bool` has one under two names."""
    assert read(Float32[Array, "n"]).exact_dtype == np.float32
    assert read(Float[Array, "n"]).exact_dtype is None
    assert read(Bool[Array, "n"]).exact_dtype == np.bool_


NAMES = [name for name in dir(jaxtyping) if isinstance(getattr(jaxtyping, name), type)]
DTYPES = [
    name
    for name in NAMES
    if issubclass(getattr(jaxtyping, name), jaxtyping.AbstractDtype) and name != "AbstractDtype"
]
VALUES = [
    np.zeros((), d)
    for d in (
        "bool",
        "int8",
        "uint8",
        "int32",
        "uint32",
        "float16",
        "float32",
        "float64",
        "complex64",
    )
]
VALUES += [
    array(0, jnp.dtype(d))
    for d in ("bool", "int4", "int32", "bfloat16", "float8_e4m3fn", "float32", "complex64")
]
VALUES += [random_key(0), np.zeros((), [("a", "i4")])]


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_allowed_as_jaxtyping_allows_them(name):
    """Every dtype class against NumPy, JAX, narrow, key and structured dtypes."""
    category = getattr(jaxtyping, name)
    theirs = [isinstance(value, category[Any, "..."]) for value in VALUES]
    assert [read(category[Array, "..."]).allows(value.dtype) for value in VALUES] == theirs


def test_custom_dtype_classes_may_hold_patterns():
    """jaxtyping takes strings and regular expressions."""
    import re

    class Wide(jaxtyping.AbstractDtype):
        dtypes = [re.compile("float(32|64)"), "int64"]  # noqa: RUF012

    hint = read(Wide[Array, "n"])
    assert [hint.allows(np.dtype(d)) for d in ("float32", "float16", "int64")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "hint",
    [int, bool, str, None, Colour, Literal["a"], type[int], np.dtype, tuple[int, ...], list[str]],
)
def test_plain_values_are_static(hint):
    """What cannot hold an array is part of the program, also in containers."""
    assert isinstance(read(hint), StaticHint)
    assert isinstance(read(Optional[hint]), StaticHint)  # noqa: UP045  # `None | None` is not a union


@pytest.mark.parametrize("hint", [float, complex])
def test_python_scalars_are_traced(hint):
    """`float` and `complex` are arrays of rank 0."""
    assert read(hint) == ScalarHint(hint.__name__)


@pytest.mark.parametrize(
    "hint",
    [
        Any,
        object,
        jax.Array,
        np.ndarray,
        npt.NDArray[np.float32],
        PyTree,
        Float,
        np.float32,
        TypeVar("T"),
        typing.Self,
    ],
)
def test_hints_without_axes_drive_nothing(hint):
    """They leave the decision to the value."""
    assert isinstance(read(hint), AnyHint)


@pytest.mark.parametrize(
    "hint", [3, "later", [int], ..., typing.Never, typing.Iterable[int], typing.ForwardRef("X")]
)
def test_reading_never_raises(hint):
    """What jitney does not know is an `AnyHint` with a reason."""
    assert read(hint).reason


@pytest.mark.parametrize(
    "hint", [Float[ArrayLike, ""], Float[float | Array, ""], ScalarLike, ArrayLike, npt.ArrayLike]
)
def test_array_like_is_one_array_that_takes_numbers(hint):
    """jaxtyping makes a union of it; for jitney it is one traced array."""
    found = read(hint)
    assert isinstance(found, ArrayHint)
    assert found.array_like


@pytest.mark.parametrize(
    "hint",
    [Float[ArrayLike, "n"], Float[Array, "n"] | Float[np.ndarray, "n"], Float[np.ndarray, "n"]],
)
def test_numpy_and_jax_arrays_are_one_array(hint):
    """Which library made the array makes no difference."""
    found = read(hint)
    assert isinstance(found, ArrayHint)
    assert found.names == ("n",)
    assert not found.array_like


def test_int_beside_an_int_array_stays_static():
    """`int | Int[Array, ""]` did not come from `ArrayLike`."""
    found = read(int | Int[Array, ""])
    assert [type(option) for option in found.options] == [StaticHint, ArrayHint]


def test_optional_array_is_a_union_with_none():
    """The array keeps its axes."""
    array, none = read(Optional[Float[Array, "n"]]).options  # noqa: UP045
    assert array.names == ("n",)
    assert none.text == "None"


def test_keys_may_be_new_or_old():
    """`PRNGKeyArray` has one new and two old forms."""
    found = read(PRNGKeyArray)
    assert isinstance(found, UnionHint)
    assert {option.text for option in found.options} >= {"Key[Array, '']", "UInt32[Array, '2']"}


def test_trees_have_a_leaf_and_a_structure():
    """`PyTree[X, "T"]`."""
    found = read(PyTree[Float[Array, "?n"], "T"])
    assert isinstance(found, TreeHint)
    assert (found.structure, found.leaf.dims[0].per_leaf) == ("T", True)


@pytest.mark.parametrize(
    ("hint", "kind", "count"),
    [
        (tuple[Float[Array, "n"], int], tuple, 2),
        (tuple[Float[Array, "n"], ...], tuple, 1),
        (list[Float[Array, "n"]], list, 1),
        (dict[str, Float[Array, "n"]], dict, 1),
        (collections.abc.Mapping[str, Float[Array, "n"]], collections.abc.Mapping, 1),
        (collections.abc.Sequence[Float[Array, "n"]], collections.abc.Sequence, 1),
        (Point, Point, 2),
        (Record, dict, 2),
        (dict, dict, 1),
    ],
)
def test_containers_have_items(hint, kind, count):
    """Tuples, lists, mappings, records; a record that contains itself ends."""
    found = read(hint)
    assert isinstance(found, ContainerHint)
    assert (found.kind, len(found.items)) == (kind, count)


@pytest.mark.parametrize(
    "hint", [Linear, eqx.Module, collections.abc.Callable, typing.Callable[[int], int]]
)
def test_classes_that_may_hold_arrays_are_modules(hint):
    """A model passed for a `Callable` keeps its arrays traced."""
    assert isinstance(read(hint), ModuleHint)


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[Float[Array, "n"], "unit: m"],
        typing.Final[Float[Array, "n"]],
        NewType("Time", Float[Array, "n"]),
        TypeVar("T", bound=Float[Array, "n"]),
        Union[Float[Array, "n"]],  # noqa: UP007
    ],
)
def test_wrappers_are_unwrapped(hint):
    """The array inside counts."""
    assert read(hint).names == ("n",)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = ...` is new in Python 3.12")
def test_type_aliases_are_unwrapped_and_may_contain_themselves():
    """A recursive alias ends in an `AnyHint`."""
    assert read(typing.TypeAliasType("Time", Float[Array, "n"])).names == ("n",)
    recursive = typing.TypeAliasType("Tree", list["Tree"])
    assert isinstance(read(recursive), ContainerHint)


def test_hints_are_hashable_and_compare_by_meaning():
    """They are part of a plan, and a plan is a key."""
    assert read(Float[Array, "n"]) == read(Float[np.ndarray, "n"])
    assert hash(read(Float[Array, "n"])) != hash(read(Float[Array, "m"]))
    assert hash(read(tuple[Literal["a"], Float[Array, "n"]])) == hash(
        read(tuple[Literal["a"], Float[Array, "n"]])
    )


def unknown(x: "Floot[Array, 'n']", y: Float[Array, "n"]) -> "Nowhere":  # type: ignore
    return x


def test_an_annotation_that_cannot_be_resolved_is_a_warning():
    """At the first call, once: the name, whose it is, what it switches off, and a name that is
    written alike.
    """
    f = optimize(pad={"n": [8]})(unknown)
    says = (
        r"unknown\(\) at test_annotations.py:\d+: the annotation `Floot\[Array, 'n'\]` of 'x'"
        r" \(name 'Floot' is not defined\), "
        r"the annotation `Nowhere` of the result \(name 'Nowhere' is not defined\) cannot be"
        r" resolved.\n.* `pad` may do less.*\n"
        "Fix: did you mean `Float`"
    )
    with pytest.warns(JitneyWarning, match=says) as told:
        f(array(np.ones(3)), array(np.ones(3)))
    assert [each.filename for each in told] == [__file__]
    f(array(np.ones(3)), array(np.ones(9)))  # a further program


@pytest.mark.parametrize("name", ["plan", "grad", "lower"])
def test_whoever_asks_first_is_told_of_an_annotation_that_cannot_be_resolved(name):
    """Not the plan alone."""

    @optimize
    def body(x: "Nowhere", y: Float[Array, "n"]) -> Float[Array, ""]:  # type: ignore
        return jnp.sum(x * y)

    with pytest.warns(JitneyWarning, match="`Nowhere` of 'x'"):
        getattr(body, name)(array(np.ones(3)), array(np.ones(3)))


class Misspelt(eqx.Module):
    weight: "Floot[Array, 'n']"  # type: ignore
    activation: "Nowhere"  # type: ignore


class Row(NamedTuple):
    x: "Floot[Array, 'n']"  # type: ignore


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Misspelt, Misspelt(array(np.ones(3)), jnp.tanh), "a.weight"),
        (Row, Row(array(np.ones(3))), "a.x"),
        (tuple[Misspelt], (Misspelt(array(np.ones(3)), jnp.tanh),), "a[0].weight"),
    ],
    ids=["module", "record", "nested"],
)
def test_a_field_whose_annotation_cannot_be_resolved_is_a_warning(kind, value, path):
    """Where it holds an array; a function is not checked anyway."""

    def body(a):
        return a

    body.__annotations__ = {"a": kind}
    with pytest.warns(
        JitneyWarning,
        match=re.escape(f"'{path}' is not checked: `Floot[Array, 'n']` is not resolved."),
    ):
        optimize(body)(value)


def test_strings_are_resolved_one_by_one():
    """A name that is missing leaves the others alone, and is reported."""

    def body(x: "Float[Array, 'n']", y: "Nowhere") -> "Scalar": ...  # type: ignore

    hints, result, unresolved = hints_of(body)
    assert hints["x"].names == ("n",)
    assert isinstance(hints["y"], AnyHint)
    assert unresolved == ("y",)
    assert result.rank == 0


def test_a_missing_part_leaves_the_rest():
    """The string is inside a list."""

    def body(x: tuple[Float[Array, "n"], "Nowhere"]): ...  # type: ignore

    hints, _, unresolved = hints_of(body)
    assert [type(item) for item in hints["x"].items] == [ArrayHint, AnyHint]
    assert unresolved == ("x",)


def test_a_namespace_resolves_local_names():
    """The caller may hand over the locals of the decorating frame."""
    Local = Float[Array, "k"]

    def body(x: "Local"): ...

    assert hints_of(body)[2] == ("x",)
    assert hints_of(body, {"Local": Local})[0]["x"].names == ("k",)


def test_closure_variables_resolve_names():
    """A type that the body uses is in its closure."""
    Local = Float[Array, "k"]

    def body(x: "Local"):
        return Local

    assert hints_of(body)[0]["x"].names == ("k",)


def test_methods_see_the_names_of_their_class():
    """Also when the class is local to a function."""

    class Outer:
        Inner = Float[Array, "k"]

        def method(self, x: "Inner", y: "Outer"): ...

    hints, _, unresolved = hints_of(Outer().method)
    assert hints["x"].names == ("k",)
    assert isinstance(hints["y"], ModuleHint)
    assert unresolved == ()


MODEL = Linear(array(np.zeros((2, 3))), None)


@pytest.mark.parametrize(
    "fn",
    [
        MODEL,
        Linear.__call__,
        MODEL.__call__,
        functools.partial(Linear.__call__, MODEL),
        jax.jit(Linear.__call__),
        eqx.filter_jit(MODEL.__call__),
    ],
)
def test_annotations_are_found_under_what_keeps_the_signature(fn):
    """Instances, bound methods, partial and jit."""
    assert hints_of(fn)[0]["x"].names == ("in",)


def loss(x: Float[Array, "n"]) -> Float[Array, ""]:
    return x.sum()


@pytest.mark.parametrize(
    "transform", [jax.vmap, jax.grad, jax.value_and_grad, eqx.filter_vmap, eqx.filter_grad]
)
def test_transforms_change_what_annotations_say(transform):
    """`jax.vmap(f)` shows the annotations of `f`, and takes arrays with one axis more."""
    for fn in (transform(loss), jax.jit(transform(loss))):
        hints, result, _ = hints_of(fn)
        assert isinstance(hints["x"], AnyHint)
        assert isinstance(result, AnyHint)


def test_functions_without_annotations_have_no_hints():
    """Builtins too."""
    assert hints_of(lambda x: x) == ({}, AnyHint(), ())
    assert hints_of(len) == ({}, AnyHint(), ())


def test_fields_are_resolved_and_inherited():
    """A base class resolves where it was written."""
    fields = fields_of(Scaled)
    assert list(fields) == ["weight", "bias", "scale"]
    assert fields["weight"].names == ("out", "in")
    assert fields["scale"] == ScalarHint("float")


def test_text_is_short():
    """Messages name hints as the user writes them."""
    assert read(Float[Array, "n"]).text == "Float[Array, 'n']"
    assert read(PyTree[Shaped[Array, "..."], "T"]).text == "PyTree[Shaped[Array, '...'], 'T']"
    assert read(Key[Array, ""] | None).text == "Key[Array, ''] | None"
    assert read(typing.Mapping[str, jax.Array]).text == "Mapping[str, Array]"
