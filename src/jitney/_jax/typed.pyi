from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

DType: TypeAlias = np.dtype[Any]
NumPyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Array: TypeAlias = jax.Array | NumPyArray
Value: TypeAlias = Any
Values: TypeAlias = list[jax.Array]

class Aval:
    def __init__(self, shape: tuple[object, ...], dtype: object) -> None: ...
    shape: tuple[int, ...]
    dtype: DType
    weak_type: bool
    ndim: int
    size: int
    sharding: Any
    def update(self, **changes: object) -> Aval: ...
    def str_short(self) -> str: ...

class Primitive:
    name: str
    multiple_results: bool
    impl: Any
    def __init__(self, name: str) -> None: ...
    def def_abstract_eval(self, rule: object) -> object: ...
    def bind(self, *args: object, **params: object) -> Any: ...
    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]: ...

class Var:
    aval: Aval

class Literal:
    aval: Aval
    val: Any

Atom: TypeAlias = Var | Literal

class JaxprEqn:
    primitive: Primitive
    params: dict[str, Any]
    invars: list[Atom]
    outvars: list[Var]
    effects: Any
    source_info: Any
    ctx: Any
    def replace(self, **changes: object) -> JaxprEqn: ...

class Jaxpr:
    constvars: list[Var]
    invars: list[Var]
    outvars: list[Atom]
    eqns: list[JaxprEqn]
    effects: Any
    debug_info: Any
    is_high: bool
    def replace(self, **changes: object) -> Jaxpr: ...

class ClosedJaxpr:
    jaxpr: Jaxpr
    consts: list[Any]
    eqns: list[JaxprEqn]
    effects: Any
    in_avals: list[Aval]
    out_avals: list[Aval]
    def __init__(self, jaxpr: Jaxpr, consts: Sequence[object]) -> None: ...
    def replace(self, **changes: object) -> ClosedJaxpr: ...

AnyJaxpr: TypeAlias = Jaxpr | ClosedJaxpr

AnyMesh: TypeAlias = jax.sharding.Mesh | jax.sharding.AbstractMesh

class Jitted:
    @property
    def __wrapped__(self) -> Callable[..., Any]: ...
    def __call__(self, *args: object, **kwargs: object) -> Any: ...
    def trace(self, *args: object, **kwargs: object) -> jax.stages.Traced: ...
    def lower(self, *args: object, **kwargs: object) -> jax.stages.Lowered: ...

class PyTreeDef:
    num_leaves: int
    def __hash__(self) -> int: ...
    num_nodes: int
    def node_data(self) -> tuple[type, object] | None: ...
    def children(self) -> list[PyTreeDef]: ...
    @staticmethod
    def from_node_data_and_children(
        registry: object, node: tuple[type, object] | None, children: Sequence[PyTreeDef]
    ) -> PyTreeDef: ...
