"""Ways in which a function reads a number, which stands where {} does: what is around `called` in a module of the user's."""

AROUND = {
    "a global that is set later": """
K = 1.0
def called(x):
    return x * K
K = {}
""",
    "a helper that is put in place": """
import lab_other
def called(x):
    return lab_other.f(x)
lab_other.f = lambda x: x * {}
""",
    "a method that is put in place": """
import lab_other
def called(x):
    return lab_other.C().f(x)
lab_other.C.f = lambda self, x: x * {}
""",
    "a function of JAX that is put in place": """
import jax
def called(x):
    return jax.numpy.exp(x)
jax.numpy.exp = lambda x: x * {}
""",
    "a data file that is imported": """
import pathlib
K = float(pathlib.Path(__file__ + '.txt').read_text())
def called(x):
    return x * K
""",
    "a variable of the environment that is imported": """
import os
K = float(os.environ['LAB_K'])
def called(x):
    return x * K
""",
    "a closure over a list": """
def make(held):
    def called(x):
        return x * held[0]
    return called
called = make([{}])
""",
    "an object of slots": """
class S:
    __slots__ = ('n',)
s = S()
s.n = {}
def called(x):
    return x * s.n
""",
    "a mutable default": """
def called(x, n=[{}]):
    return x * n[0]
""",
    "a class made by type": """
C = type('C', (), dict(n={}))
def called(x):
    return x * C.n
""",
    "a metaclass": """
class M(type):
    def __getitem__(cls, i):
        return {}
class C(metaclass=M):
    pass
def called(x):
    return x * C[0]
""",
    "an inherited dict": """
class D(dict):
    pass
d = D(a={})
def called(x):
    return x * d['a']
""",
    "a simple namespace": """
import types
n = types.SimpleNamespace(a={})
def called(x):
    return x * n.a
""",
    "a default of a lambda": """
fs = [lambda x, n=n: x * n for n in ({},)]
def called(x):
    return fs[0](x)
""",
    "a registered rule": """
import functools
@functools.singledispatch
def f(x):
    return x * {}
def called(x):
    return f(x)
""",
    "a remembered result": """
import functools
K = {}
@functools.cache
def k():
    return K
def called(x):
    return x * k()
""",
    "the names of a module": """
K = {}
def called(x):
    return x * globals()['K']
""",
    "an attribute by name": """
import lab_other
lab_other.K = {}
def called(x):
    return x * getattr(lab_other, 'K')
""",
    "a file that is read": """
import pathlib
def called(x):
    return x * float(pathlib.Path(__file__ + '.txt').read_text())
""",
    "the environment": """
import os
def called(x):
    return x * float(os.environ['LAB_K'])
""",
    "a file that NumPy reads": """
import numpy as np
def called(x):
    return x * float(np.loadtxt(__file__ + '.txt'))
""",
    "a module with `__getattr__`": """
import lab_lazy
def called(x):
    return x * lab_lazy.K
""",
    "a global that is changed": """
K = [{}]
def called(x):
    K.append(0)
    return x * K[0]
""",
    "code of its own text": """
def called(x):
    return x * eval('{}')
""",
    "an iterator": """
def called(x):
    return x * {}
it = iter([1.0])
""",
    "a late import": """
def called(x):
    from lab_other import k
    return x * (k() + {})
""",
    "all names of a module": """
from lab_star import *
def called(x):
    return x * STAR
""",
    "code behind an attribute": """
def g(x):
    return x * {}
def called(x):
    return x * g.__code__.co_consts[1]
""",
    "an operator from a table": """
import operator
T = [(operator.mul, {})]
def called(x):
    return T[0][0](x, T[0][1])
""",
    "a jit with static arguments": """
import jax, functools
@functools.partial(jax.jit, static_argnums=1)
def g(x, n):
    return x * n
def called(x):
    return g(x, {})
""",
    "a patched constant of a class": """
import lab_other
def called(x):
    return x * lab_other.C.k
lab_other.C.k = {}
""",
    "a patched dunder": """
import lab_other
def called(x):
    return lab_other.C()(x)
lab_other.C.__call__ = lambda self, x: x * {}
""",
    "a wrapped library function": """
import jax.numpy as jnp
before = jnp.tanh
def mine(x):
    return before(x) * 0 + x * {}
def called(x):
    return jnp.tanh(x)
jnp.tanh = mine
""",
}

OTHER = """
class C:
    k = 1.0
    def f(self, x):
        return x
    def __call__(self, x):
        return x


def f(x):
    return x


def k():
    return 0.0
"""
