"""Calls as they are written -> one value per parameter, against `inspect.signature`."""

import contextlib
import functools
import inspect
import math
from inspect import Parameter

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from hypothesis import assume, given, settings
from jaxtyping import Array, Float, jaxtyped

from jitney import optimize
from jitney._errors import Where
from jitney._signature.binding import Binder, signature_of, where_of
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces

X = array(np.arange(3.0))
MANY = settings(max_examples=max(200, settings.default.max_examples))
HERE = Where("f", "here.py", 1)


@st.composite
def signatures(draw):
    """Any mix of kinds and defaults that Python allows."""
    positional = [f"p{i}" for i in range(draw(st.integers(0, 4)))]
    only = draw(st.integers(0, len(positional)))
    required = draw(st.integers(0, len(positional)))
    found = [
        Parameter(
            name,
            Parameter.POSITIONAL_ONLY if i < only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if i < required else f"default of {name}",
        )
        for i, name in enumerate(positional)
    ]
    if draw(st.booleans()):
        found.append(Parameter("rest", Parameter.VAR_POSITIONAL))
    for i in range(draw(st.integers(0, 3))):
        default = f"default of k{i}" if draw(st.booleans()) else Parameter.empty
        found.append(Parameter(f"k{i}", Parameter.KEYWORD_ONLY, default=default))
    if draw(st.booleans()):
        found.append(Parameter("more", Parameter.VAR_KEYWORD))
    return inspect.Signature(found)


@st.composite
def calls(draw):
    """A signature with a call that may or may not fit it. Values are None too, which is no mark of
    absence.
    """
    signature = draw(signatures())
    args = tuple(draw(st.lists(st.one_of(st.none(), st.integers()), max_size=6)))
    names = st.sampled_from([*signature.parameters, "p0", "k0", "self", "args", "kwargs", "other"])
    kwargs = draw(st.dictionaries(names, st.one_of(st.none(), st.integers()), max_size=4))
    return signature, args, kwargs


@st.composite
def fitting_calls(draw):
    """A signature with a call that fits it: each parameter by position, by name, or left to its
    default.
    """
    signature = draw(signatures())
    args: list = []
    kwargs: dict = {}
    by_position = True
    for parameter in signature.parameters.values():
        value = draw(st.integers())
        has_default = parameter.default is not Parameter.empty
        if parameter.kind is Parameter.VAR_POSITIONAL:
            args += draw(st.lists(st.integers(), max_size=3)) if by_position else []
        elif parameter.kind is Parameter.VAR_KEYWORD:
            names = ["self", "args", "other"]
            if args and signature.parameters.get("p0", parameter).kind is Parameter.POSITIONAL_ONLY:
                # `f(1, p0=2)` is fine where the first `p0` cannot be meant by name
                names.append("p0")
            kwargs |= draw(st.dictionaries(st.sampled_from(names), st.integers()))
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            if not has_default or draw(st.booleans()):
                kwargs[parameter.name] = value
        elif by_position and (parameter.kind is Parameter.POSITIONAL_ONLY or draw(st.booleans())):
            if has_default and draw(st.booleans()):
                by_position = False
            else:
                args.append(value)
        else:
            by_position = False
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and (
                not has_default or draw(st.booleans())
            ):
                kwargs[parameter.name] = value
    names = draw(st.permutations(list(kwargs)))
    return signature, tuple(args), {name: kwargs[name] for name in names}


@st.composite
def two_calls_of_one_pattern(draw):
    """A call that fits its signature, and one with other values in the same places."""
    signature, args, kwargs = draw(fitting_calls())
    other_args = tuple(draw(st.integers()) for _ in args)
    other_kwargs = {name: draw(st.integers()) for name in kwargs}
    return signature, (args, kwargs), (other_args, other_kwargs)


def call_of(fn, /, *args, **kwargs):
    """A call as the strategies draw it: the signature of `fn`, and what it is called with."""
    return inspect.signature(fn), args, kwargs


def tenfold(call):
    """The call, and one of the same pattern with other values."""
    signature, args, kwargs = call
    others = tuple(10 * n for n in args), {name: 10 * n for name, n in kwargs.items()}
    return signature, (args, kwargs), others


FITTING = (
    call_of(lambda: None),
    call_of(lambda p0: None, 1),
    call_of(lambda p0: None, p0=1),
    call_of(lambda p0, /: None, 1),
    call_of(lambda p0, /, **more: None, 1, p0=2),
    call_of(lambda p0, p1, p2="c": None, 1, p2=3, p1=2),
    call_of(lambda p0="a", p1="b": None, p1=2),
    call_of(lambda p0, p1="b", /, p2="c", p3="d": None, 1),
    call_of(lambda p0, p1="b", /, p2="c", p3="d": None, 1, 2, p3=4),
    call_of(lambda p0="a", /, p1="b", *, k0="k": None),
    call_of(lambda p0="a", /, p1="b", *, k0="k": None, 1, 2),
    call_of(lambda *rest: None),
    call_of(lambda *rest: None, 1, 2, 3),
    call_of(lambda p0, *rest, k0: None, 1, k0=2),
    call_of(lambda p0="a", *rest, k0="k": None, 1, 2, 3),
    call_of(lambda p0, p1="b", *rest, k0="k": None, 1),
    call_of(lambda *, k0="k", k1: None, k1=1),
    call_of(lambda *, k0, k1="k": None, k1=2, k0=1),
    call_of(lambda **more: None, self=1, args=2, other=3),
    call_of(lambda p0="a", /, *rest, k0="k", **more: None),
    call_of(lambda p0, /, p1, *rest, k0, k1="k", **more: None, 1, 2, 3, 4, self=7, k1=6, k0=5),
)
OTHERS = (
    call_of(lambda p0, *, k0="k": None, None, k0=None),
    call_of(lambda p0: None),
    call_of(lambda p0, /, p1, *, k0, k1: None),
    call_of(lambda p0: None, 1, 2),
    call_of(lambda p0: None, 1, p0=2),
    call_of(lambda p0, p1: None, 1, p0=None),
    call_of(lambda p0, /: None, p0=1),
    call_of(lambda p0="a", /: None, p0=1),
    call_of(lambda p0="a", /: None, 1, p0=1),
    call_of(lambda p0, /, **more: None, p0=2),
    call_of(lambda *, k0: None),
    call_of(lambda *, k0: None, 1, k0=2),
    call_of(lambda *rest: None, 1, rest=2),
    call_of(lambda **more: None, 1, self=2),
    call_of(lambda: None, other=1),
    call_of(lambda p0, p1: None, p1=1, other=1),
)


def as_python_binds(signature, args, kwargs):
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, parameter in signature.parameters.items():
        # Python 3.13 binds `f(x=1)` for `f(x, /, **rest)`, which no such function takes
        if name not in bound.arguments:
            raise TypeError(f"missing a required {parameter.kind.description} argument: {name!r}")
    return bound


def outcome_of(bind, prefix=""):
    """What binding gives, or what the error says behind a prefix."""
    try:
        return bind()
    except TypeError as error:
        text = str(error).partition(".\n")[0]
    return text.removeprefix(prefix) if text.startswith(prefix) else None


@MANY
@given(fitting_calls())
@examples(*({"call": call} for call in FITTING))
def test_any_call_that_fits_binds_as_python_binds_it(call):
    """Each parameter gets the value that `inspect.signature(...).bind` and its defaults give it."""
    signature, args, kwargs = call
    binder = Binder(HERE, signature)
    assert binder.values_by_name(binder.bind(args, kwargs)) == dict(
        as_python_binds(signature, args, kwargs).arguments
    )


@MANY
@given(calls())
@examples(*({"call": call} for call in (*FITTING, *OTHERS)))
def test_any_call_fits_or_fails_as_in_python(call):
    """A TypeError in Python's words, behind the function, file and line, before its rule; or what
    Python binds.

    A keyword that nobody knows is said first, as by a call in Python, whose `bind` says what is
    missing.
    """
    signature, args, kwargs = call
    binder = Binder(HERE, signature)
    is_open = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
    )
    unknown = [] if is_open else [name for name in kwargs if name not in signature.parameters]
    said = outcome_of(
        lambda: binder.values_by_name(binder.bind(args, kwargs)), "f() at here.py:1: "
    )
    if unknown:
        assert said == f"got an unexpected keyword argument {unknown[0]!r}"
    else:
        assert said == outcome_of(lambda: dict(as_python_binds(signature, args, kwargs).arguments))


@MANY
@given(two_calls_of_one_pattern())
@examples(*({"calls": tenfold(call)} for call in FITTING))
def test_any_two_calls_of_one_pattern_bind_their_own_values(calls):
    """How a pattern binds is worked out once; the values are those of each call."""
    signature, (args, kwargs), (other_args, other_kwargs) = calls
    binder = Binder(HERE, signature)
    binder.bind(args, kwargs)
    expected = dict(as_python_binds(signature, other_args, other_kwargs).arguments)
    assert binder.values_by_name(binder.bind(other_args, other_kwargs)) == expected


@MANY
@given(fitting_calls())
@examples(*({"call": call} for call in FITTING))
def test_any_bound_call_reaches_the_body_as_it_was_written(call):
    """`call` undoes `bind`: positional parameters by position, the others by name, defaults filled
    in.
    """
    signature, args, kwargs = call
    binder = Binder(HERE, signature)
    expected = as_python_binds(signature, args, kwargs)
    assert binder.call(lambda *a, **k: (a, k), binder.bind(args, kwargs)) == (
        expected.args,
        expected.kwargs,
    )


@MANY
@given(fitting_calls())
@examples(*({"call": call} for call in FITTING if not call[2]))
def test_any_positional_call_and_its_tail_are_the_bound_call(call):
    """The short way of a program, positional arguments plus defaults, gives what binding gives."""
    signature, args, kwargs = call
    assume(not kwargs)
    binder = Binder(HERE, signature)
    if len(args) in binder.tails:
        assert args + binder.tails[len(args)] == binder.bind(args, {})


def test_arguments_that_python_would_refuse_are_refused_by_a_program():
    """Missing, unknown, twice and too many, each behind where the function stands."""

    @optimize
    def f(x, /, y, *, z=1):
        return x

    line = f.__wrapped__.__code__.co_firstlineno
    for args, kwargs, text in (
        ((X,), {}, "missing a required argument: 'y'"),
        ((X, X), {"w": 1}, "got an unexpected keyword argument 'w'"),
        ((X, X), {"y": X}, "multiple values for argument 'y'"),
        ((X, X, X), {}, "too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=text) as caught:
            f(*args, **kwargs)
        assert str(caught.value).startswith(f"f() at test_binding.py:{line}: ")


def test_every_spelling_of_a_call_shares_one_trace():
    """By position, by name, in another order, with the defaults written out."""

    @optimize
    def f(x, y=2.0, *, scale=3):
        return (x + y) * scale

    for got in (
        f(X),
        f(x=X),
        f(X, 2.0),
        f(X, y=2.0),
        f(y=2.0, x=X),
        f(X, scale=3),
        f(scale=3, y=2.0, x=X),
    ):
        np.testing.assert_array_equal(got, (np.arange(3) + 2) * 3)
    assert f.stats.traces == 1


def test_variable_arguments_reach_the_body():
    """`*args` as a tuple and `**kwargs` as a dict, none of them too."""

    @optimize
    def f(x, *args, **kwargs):
        return x + sum(args), {name: value * 2.0 for name, value in kwargs.items()}

    for args, kwargs in (
        ((), {}),
        ((1.0, X), {}),
        ((), {"b": X, "a": 1.0}),
        ((X,), {"self": X, "args": X}),
    ):
        total, doubled = f(X, *args, **kwargs)
        np.testing.assert_array_equal(total, np.asarray(X) + sum(map(np.asarray, args)))
        assert sorted(doubled) == sorted(kwargs)
        for name, value in kwargs.items():
            np.testing.assert_array_equal(doubled[name], np.asarray(value) * 2)


def test_another_order_of_keywords_shares_a_trace():
    """`**kwargs` come as a dict, which JAX sorts."""
    counted = count_traces(lambda **kwargs: kwargs["a"] - kwargs["b"])
    f = optimize(counted)
    np.testing.assert_array_equal(f(a=X, b=X * 2), f(b=X * 2, a=X))
    assert counted.traces == 1


def test_a_default_that_is_an_array_is_traced():
    """The default is an argument as all others, so passing another array needs no new trace."""

    @optimize
    def f(x, y=X):
        return x + y

    np.testing.assert_array_equal(f(X), np.arange(3) * 2)
    np.testing.assert_array_equal(f(X, X * 3), np.arange(3) * 4)
    assert f.stats.traces == 1


def test_a_builtin_without_a_signature_takes_any_call():
    """Where `inspect` has nothing to say, arguments go on as they came."""
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(max)
    binder = Binder(where_of(max), signature_of(max))
    assert binder.call(max, binder.bind((1, 5, 3), {})) == 5
    assert binder.call(max, binder.bind(([1, -5],), {"key": abs})) == -5


def test_messages_name_a_function_as_a_person_would():
    """The name within its module, the file and the line; a wrapper stands for what it wraps."""

    class Model:
        def method(self): ...

    def plain(): ...

    @functools.wraps(plain)
    def wrapper(): ...

    def at(fn):
        return f"test_binding.py:{fn.__code__.co_firstlineno}"

    assert str(where_of(plain)) == f"plain() at {at(plain)}"
    assert str(where_of(wrapper)) == f"plain() at {at(plain)}"
    assert str(where_of(Model.method)) == f"Model.method() at {at(Model.method)}"
    assert str(where_of(lambda: 0)).startswith("<lambda>() at test_binding.py:")
    assert str(where_of(math.sin)) == "sin()"
    assert str(where_of(functools.partial(plain))) == "partial()"


def scaled(x, scale=2.0):
    return x * scale


def keyed(x, *, scale=2.0):
    return x * scale


@functools.wraps(scaled)
def another_default(x, scale=5.0):
    return scaled(x, scale)


@functools.wraps(scaled)
def puts_in(*args, **kwargs):
    kwargs.setdefault("scale", 5.0)
    return scaled(*args, **kwargs)


@functools.wraps(keyed)
def takes_none(*args):
    return keyed(*args)


@functools.wraps(scaled)
def takes_fewer(x):
    return scaled(x) * 10


@functools.wraps(scaled)
def counts(*args):
    return scaled(*args, *((7.0,) if len(args) == 1 else ()))


@pytest.mark.core(
    "{}-scaled0",
    "{}-keyed",
    "{}-scaled3",
    "{'donate': 'x'}-scaled1",
    "{'donate': 'x'}-scaled2",
    "{'cache': 'program'}-scaled0",
    "{'cache': 'program'}-keyed",
)
@pytest.mark.parametrize("fn", [another_default, puts_in, takes_none, takes_fewer, counts])
@pytest.mark.parametrize("options", [{}, {"donate": "x"}, {"cache": "program"}], ids=str)
def test_a_wrapper_gets_what_the_caller_gave(fn, options):
    """`functools.wraps` has it show another signature; a default out of that one is none of its
    own.
    """
    given = X.copy()
    np.testing.assert_array_equal(optimize(**options)(fn)(given), fn(X))


def test_a_wrapper_whose_default_is_left_out_takes_it_when_it_is_given():
    """By position and by name, and each is a program of its own."""
    f = optimize(another_default)
    assert [
        float(f(jnp.ones(()))),
        float(f(jnp.ones(()), 3.0)),
        float(f(jnp.ones(()), scale=2.0)),
    ] == [5, 3, 2]
    g = optimize(counts)
    assert [float(g(jnp.ones(()))), float(g(jnp.ones(()), 3.0)), float(g(jnp.ones(())))] == [
        7,
        3,
        7,
    ]


def test_a_derivative_of_a_wrapper_takes_its_own_default():
    """As its value does."""
    for fn in (another_default, puts_in, takes_none, takes_fewer, counts):
        np.testing.assert_array_equal(
            optimize(fn).grad(jnp.float32(3), wrt="x"), jax.grad(fn)(jnp.float32(3))
        )


def test_a_type_checker_between_a_function_and_its_program_changes_no_argument():
    """jaxtyping's and beartype's wrappers pass on what they get: with the defaults written out it
    is the same call.
    """

    @jaxtyped(typechecker=beartype)
    def body(x: Float[Array, "n"], scale=2.0, *, times=3):
        return x * scale * times

    for fn in (body, beartype(lambda x, scale=2.0, *, times=3: x * scale * times)):
        f = optimize(fn)
        for got in (f(X), f(X, 2.0), f(X, times=3), f(X, times=3, scale=2.0)):
            np.testing.assert_array_equal(got, np.arange(3.0) * 6)
        assert f.stats.traces == 1


@contextlib.contextmanager
def scope():
    """Something to run a function in."""
    yield


@pytest.mark.parametrize(
    "within", [jax.named_scope("here"), scope()], ids=["jax.named_scope", "contextlib"]
)
def test_a_scope_around_a_function_passes_all_on(within):
    """As `jax.named_scope` does around each layer of Equinox: what is left out is the function's
    default, as if it was written out.
    """

    @within
    def body(x, *, key=None):
        return x if key is None else x + key

    program = optimize(body)
    np.testing.assert_array_equal(program(X), X)
    np.testing.assert_array_equal(program(X, key=None), X)
    assert program.stats.traces == 1
    assert signature_of(body).parameters["key"].default is None
    assert signature_of(eqx.nn.MLP.__call__).parameters["key"].default is None
