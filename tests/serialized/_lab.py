"""A small package of the user's that reads a number in each of many ways, and processes that run
it, real ones and pretended ones.

`total` is the sum of all its numbers times `x`, so that whoever runs an older version of any of its
parts is caught by its result.
"""

from __future__ import annotations

import importlib
import string
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HELPER = """
import dataclasses
import enum
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import lab_sub.deep as deep

OWN = {own_global}
PLAIN = {module_attribute}
ALIASED = {aliased_module}
TABLE = {{"a": {dict_entry}, "b": ({nested_tuple}, [{list_element}])}}
ARRAY = np.array([{numpy_array}], np.float32)
CHOSEN = frozenset(({set_member},))


def literal(x):
    return x * {helper_literal}


def own(x):
    return x * OWN


def make(n):
    def inside(x):
        return x * n

    return inside


def twice(n):
    def outer():
        def inside(x):
            return x * n

        return inside

    return outer()


def with_default(x, n={default}):
    return x * n


def with_keyword(x, *, n={keyword_default}):
    return x * n


def decorated(n):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapped(x):
            return fn(x) * n + x * {decorator_body}

        return wrapped

    return decorate


class Base:
    attribute = {base_attribute}

    def of_base(self, x):
        return x * {base_method}


class Shape(Base):
    own_attribute = {class_attribute}

    def __init__(self, n):
        self.n = n

    @property
    def prop(self):
        return {property_body}

    @staticmethod
    def static(x):
        return x * {static_method}

    @classmethod
    def klass(cls, x):
        return x * {class_method}

    def __call__(self, x):
        return x * {call_method}

    def __add__(self, x):
        return x * {operator_method}

    def over(self, x):
        return super().of_base(x)


class Described:
    def __get__(self, instance, owner=None):
        return {descriptor}


class Holder:
    value = Described()


SHAPE = Shape({instance_attribute})


@dataclasses.dataclass(frozen=True)
class Config:
    n: float = {dataclass_default}


class Pair(NamedTuple):
    a: float = {named_tuple_default}


class Kind(enum.Enum):
    ONE = {enum_value}


class Layer(eqx.Module):
    w: float = eqx.field(static=True, default={static_field})

    def __call__(self, x):
        return x * self.w + x * {module_method}


LAYER = Layer()


@jax.custom_jvp
def custom(x):
    return x * {custom_body}


@custom.defjvp
def _(primals, tangents):
    return custom(primals[0]), tangents[0] * {custom_body}


@jax.jit
def jitted(x):
    return x * {jitted_body}


def attributed(x):
    return x * attributed.k


attributed.k = {function_attribute}

space = {{}}
exec("def generated(x):\\n    return x * {generated}\\n", space)
generated = space["generated"]
"""

MAIN = """
import functools

import jax
import jax.numpy as jnp

import jitney
import lab_helper
import lab_sub.deep
from lab_helper import Config, Holder, Kind, Pair, decorated, make, twice, with_default, with_keyword
from lab_helper import literal as taken

GLOBAL = {main_global}
JAX_ARRAY = jnp.array({jax_array}, jnp.float32)
CLOSED = make({closure})
DEEPER = twice({closure_of_closure})
PARTIAL = functools.partial(lambda n, x: x * n, {partial_argument})
LAMBDAS = {{"f": lambda x: x * {lambda_in_dict}}}
NAME = "{text_constant}"


@decorated({decorator_argument})
def plain(x):
    return x * {decorated_body}


def aliased(x):
    module = lab_helper
    return x * module.ALIASED


def total(x):
    def inner(x):
        return x * {inner_function}

    parts = [
        x * {main_literal}, x * GLOBAL, taken(x), lab_helper.own(x), x * lab_helper.PLAIN, aliased(x), x * lab_sub.deep.VALUE,
        CLOSED(x), DEEPER(x), with_default(x), with_keyword(x), PARTIAL(x), LAMBDAS["f"](x), x * float(NAME), plain(x), inner(x),
        x * lab_helper.SHAPE.n, x * lab_helper.SHAPE.attribute, x * lab_helper.SHAPE.own_attribute, x * lab_helper.SHAPE.prop,
        lab_helper.SHAPE.static(x), lab_helper.SHAPE.klass(x), lab_helper.SHAPE(x), lab_helper.SHAPE + x, lab_helper.SHAPE.over(x),
        x * Holder().value, x * Config().n, x * Pair().a, x * Kind.ONE.value, lab_helper.LAYER(x), lab_helper.custom(x),
        lab_helper.jitted(x), lab_helper.attributed(x), lab_helper.generated(x), x * JAX_ARRAY, x * lab_helper.ARRAY[0],
        x * lab_helper.TABLE["a"], x * lab_helper.TABLE["b"][0], x * lab_helper.TABLE["b"][1][0], x * max(lab_helper.CHOSEN),
        *[x * n for n in [{comprehension}]],
    ]
    return functools.reduce(jnp.add, parts)


def called(x):
    {context}


program = jitney.optimize(cache="program")(called)
"""

NAMES = [
    name
    for _, name, _, _ in string.Formatter().parse(HELPER + MAIN)
    if name is not None and name != "context"
]
NUMBERS = {name: 1 + i / 64 for i, name in enumerate(dict.fromkeys([*NAMES, "deep_module"]))}
CONTEXTS = {
    "plain": "return total(x)",
    "jit": "return jax.jit(total)(x)",
    "scan": "return jax.lax.scan(lambda c, y: (c, total(y)), 0.0, x)[1]",
    "vmap": "return jax.vmap(total)(x)",
    "grad": "return x * jax.grad(lambda x: jnp.sum(total(x)))(x)",
    "cond": "return jax.lax.cond(x[0] > 0, total, lambda x: x, x)",
    "checkpoint": "return jax.checkpoint(total)(x)",
    "while": (
        "return jax.lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, total(s[1])), (0,"
        " x))[1]"
    ),
    "filter_jit": "import equinox\n    return equinox.filter_jit(total)(x)",
}
X = (1.0, 2.0)


def total_of(numbers: Mapping[str, float]) -> float:
    """What `total` multiplies `x` with: `plain` is the one number that is multiplied by another."""
    product = numbers["decorated_body"] * numbers["decorator_argument"]
    return (
        sum(numbers.values()) - numbers["decorated_body"] - numbers["decorator_argument"] + product
    )


def sources(
    context: str, numbers: Mapping[str, float], change: Callable[[str], str] = str
) -> dict[str, str]:
    """The files of the package; `change` edits the text of each."""
    filled = {
        **{name: repr(value) for name, value in numbers.items()},
        "context": CONTEXTS[context],
    }
    files = {
        "lab_helper.py": HELPER.format(**filled),
        "lab_main.py": MAIN.format(**filled),
        "lab_sub/__init__.py": "",
    }
    files["lab_sub/deep.py"] = f"VALUE = {numbers['deep_module']!r}\n"
    return {name: change(text) for name, text in files.items()}


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Put files there."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


@contextmanager
def process(folder: Path, name: str = "lab_main") -> Iterator[Any]:
    """A module as another process sees it: imported anew, with all that it imports from this
    folder.
    """
    sys.path.insert(0, str(folder))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(folder))
        for module in [
            m
            for m, held in sys.modules.items()
            if str(folder) in str(getattr(held, "__file__", ""))
        ]:
            del sys.modules[module]


def notes(program: Any) -> list[tuple[bool, str]]:
    """What became of each call."""
    return [
        note
        for entry in program.core.entries.values()
        if entry.kept is not None
        for note in entry.kept.notes.values()
    ]


def is_found(program: Any) -> bool:
    """Whether the only program was found."""
    [(_, why)] = notes(program)
    return why.startswith("found")
