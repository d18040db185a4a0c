"""Ways in which a function reads a number, which stands where {} does: what is around `called` in a
module of the user's.
"""

AROUND = {
    "a pattern that reads a module": """
import types
import lab_star
def called(x):
    match lab_star:
        case types.ModuleType(STAR=n):
            return x * n
""",
    "a format that reads a module": """
import lab_star
def called(x):
    return x * float("{0.STAR}".format(lab_star))
""",
    "a class that is registered": """
import abc
class Base(abc.ABC):
    pass
class Under(Base):
    pass
class Value:
    pass
if {} == 2.5:
    Under.register(Value)
value = Value()
def called(x):
    return x * (2.5 if isinstance(value, Base) else 3.5)
""",
    "what an alias is of": """
import typing
class Scale:
    n = {}
Held = list[Scale]
def called(x):
    return x * typing.get_args(Held)[0].n
""",
    "what is said beside a type": """
import typing
class Scale:
    def __init__(self, n):
        self.n = n
    def __repr__(self):
        return "scale"
Held = typing.Annotated[int, Scale({})]
def called(x):
    return x * Held.__metadata__[0].n
""",
    "whether a class is registered in JAX's trees": """
import jax
class Scale:
    n = 2.5
if {} == 2.5:
    jax.tree_util.register_static(Scale)
held = Scale()
def called(x):
    return x * (3.5 if jax.tree.leaves(held) else 2.5)
""",
    "a class that an annotation names": """
import typing
class Scale:
    n = {}
def typed(x: Scale):
    return x
def called(x):
    return x * typing.get_type_hints(typed)["x"].n
""",
    "how an array is laid out": """
import numpy as np
held = np.asarray(np.ones((2, 2)), order="C" if {} == 2.5 else "F")
def called(x):
    return x * (2.5 if held.strides[0] == 16 else 3.5)
""",
    "how NumPy prints": """
import numpy as np
np.set_printoptions(precision=3 if {} == 2.5 else 2)
held = np.array([0.1234])
def called(x):
    return x * (2.5 if str(held) == "[0.123]" else 3.5)
""",
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
    "a result that was remembered before": """
import functools
K = {}
@functools.cache
def k(n):
    return n * K
k(1)
K = 5.0
def called(x):
    return x * k(1)
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
    "a deque": """
import collections
d = collections.deque([{}])
def called(x):
    return x * d[0]
""",
    "a decimal": """
import decimal
d = decimal.Decimal('{}')
def called(x):
    return x * float(d)
""",
    "a fraction": """
import fractions
d = fractions.Fraction({})
def called(x):
    return x * float(d)
""",
    "a getter of items": """
import operator
n = [0.0, 1.0, 2.5, 3.5]
g = operator.itemgetter(n.index({}))
def called(x):
    return x * g(n)
""",
    "a pattern": """
import re
p = re.compile('{}')
def called(x):
    return x * (2.5 if p.match('2.5') else 3.5)
""",
    "a large array in a namespace": """
import types
import numpy as np
a = np.ones(5000)
a[2500] = {}
n = types.SimpleNamespace(a=a)
def called(x):
    return x * float(n.a[2500])
""",
    "a key of an order": """
import functools
k = functools.cmp_to_key(lambda a, b: 0)({})
def called(x):
    return x * k.obj
""",
    "a vectorized function": """
import numpy as np
f = np.vectorize(lambda n: n * {})
def called(x):
    return x * float(f(1.0))
""",
    "a universal function": """
import numpy as np
N = {}
def called(x):
    return x * float(np.sqrt(N * N))
""",
    "a date": """
import datetime
d = datetime.timedelta(seconds={})
def called(x):
    return x * d.total_seconds()
""",
    "an array of Python": """
import array
a = array.array('d', [{}])
def called(x):
    return x * a[0]
""",
    "a counter": """
import collections
c = collections.Counter(a={})
def called(x):
    return x * c['a']
""",
    "an ordered dict of subclasses": """
import collections
class O(collections.OrderedDict):
    pass
o = O(a={})
def called(x):
    return x * o['a']
""",
    "an exception": """
e = ValueError({})
def called(x):
    return x * e.args[0]
""",
    "a subclass of float": """
class F(float):
    pass
f = F({})
def called(x):
    return x * float(f)
""",
    "a custom rule": """
import jax
@jax.custom_vjp
def f(x):
    return x * {}
f.defvjp(lambda x: (f(x), None), lambda r, g: (g,))
def called(x):
    return f(x)
""",
    "a jit of a closure": """
import jax
def make(n):
    return jax.jit(lambda x: x * n)
g = make({})
def called(x):
    return g(x)
""",
    "a bound method of another object": """
class C:
    def __init__(self, n):
        self.n = n
    def f(self, x):
        return x * self.n
f = C({}).f
def called(x):
    return f(x)
""",
    "a property that is remembered": """
import functools
class C:
    @functools.cached_property
    def n(self):
        return {}
c = C()
def called(x):
    return x * c.n
""",
    "a static argument of a partial": """
import functools, jax
g = functools.partial(jax.tree.map, lambda x: x * {})
def called(x):
    return g(x)
""",
    "a context variable": """
import contextvars
v = contextvars.ContextVar('v', default={})
def called(x):
    return x * v.get()
""",
    "a value of a thread": """
import threading
t = threading.local()
t.n = {}
def called(x):
    return x * t.n
""",
    "a weak reference": """
import weakref
class C:
    n = {}
c = C()
r = weakref.ref(c)
def called(x):
    return x * r().n
""",
    "a chain of maps": """
import collections
m = collections.ChainMap(dict(), dict(a={}))
def called(x):
    return x * m['a']
""",
    "a builtin that is put in place": """
import lab_other
lab_other.float = lambda x: {}
def called(x):
    return x * lab_other.float(1)
""",
    "a nested program": """
import jitney
K = {}
@jitney.optimize
def g(x):
    return x * K
def called(x):
    return g(x)
""",
    "a match of a class": """
import dataclasses
@dataclasses.dataclass
class P:
    n: float
p = P({})
def called(x):
    match p:
        case P(n=n):
            return x * n
""",
    "a name of a class": """
class C:
    pass
C.__name__ = 'C{}'
def called(x):
    return x * float(C.__name__[1:])
""",
    "a qualified name": """
def g(x):
    return x
g.__qualname__ = 'g{}'
def called(x):
    return x * float(g.__qualname__[1:])
""",
    "a module of a function": """
def g(x):
    return x
g.__module__ = 'g{}'
def called(x):
    return x * float(g.__module__[1:])
""",
    "an array that another is a view of": """
import numpy as np
V = (np.arange(3.0) * {})[:1]
def called(x):
    return x * V.base.sum() / 3
""",
    "a class of Python's that passes for one of the user's": """
import abc
class A(abc.ABC):
    pass
if {} > 3:
    A.register(int)
def called(x):
    return x * (3.5 if isinstance(1, A) else 2.5)
""",
    "an attribute of what is traced": """
import jax
jax.core.Tracer.lab_number = {}
def called(x):
    return x * x.lab_number
""",
    "an instance that answers for itself": """
class C:
    def __getattribute__(self, name):
        return {}
O = C()
def called(x):
    return x * O.anything
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
