"""One call of the drop-in: SciPy's checks in SciPy's words, the choice between the compiled program
and the host, and SciPy's result.
"""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from scipy.optimize import OptimizeResult
from scipy.sparse.linalg import LinearOperator

from . import _host, _outcome, large
from ._coleman_li import Bounds, active, off_bounds
from ._jit import DerivativeError
from ._losses import EPS, LOSSES, rho_of
from ._problem import Data, Setup
from ._program import programs
from ._result import MESSAGES
from ._run import Request, run
from ._spent import Spent, cost
from ._traced import REFUSED, Traced, compiled, positioned, pushed, traced, whole

SCHEMES = ("2-point", "3-point", "cs")
INNER = {"atol": 1e-6, "btol": 1e-6, "maxiter": None}
LSMR = frozenset(("regularize", "damp", "atol", "btol", "conlim", "maxiter", "show", "x0"))
STOPPED = "Stopped because `callback` function raised `StopIteration` or returned `True`"


# x, nfev, njev, status, and the residuals with their Jacobian, without the weights of a loss
End = tuple[np.ndarray, int, int, int, tuple[np.ndarray, Any]]


class NotTraced(UserWarning):
    """A function runs in NumPy, since JAX cannot trace it."""


@dataclass(frozen=True)
class Call:
    """The arguments, checked."""

    method: str
    jac: Any
    tr_solver: str | None
    loss: Any
    verbose: int
    max_nfev: int
    x0: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scale: np.ndarray | None  # the Jacobian's
    tolerances: tuple[float | None, ...]
    f_scale: float
    diff_step: Any
    tr_options: Mapping[str, Any]
    jac_sparsity: Any
    callback: Callable[..., Any] | None

    @classmethod
    def checked(cls, *, x0: Any, bounds: Any, x_scale: Any, max_nfev: Any, **others: Any) -> "Call":
        """All that can be said without calling a function."""
        _check_words(max_nfev=max_nfev, **others)
        if np.iscomplexobj(x0):
            raise ValueError("`x0` must be real.")
        x0 = np.atleast_1d(x0).astype(float)
        if x0.ndim > 1:
            raise ValueError("`x0` must have at most 1 dimension.")
        lower, upper = box_of(bounds, x0.size)
        if others["method"] == "lm" and (np.isfinite(lower).any() or np.isfinite(upper).any()):
            raise ValueError("Method 'lm' doesn't support bounds.")
        if lower.shape != x0.shape or upper.shape != x0.shape:
            raise ValueError("Inconsistent shapes between bounds and `x0`.")
        if np.any(lower >= upper):
            raise ValueError("Each lower bound must be strictly less than each upper bound.")
        if np.any(np.isnan(x0)):
            raise ValueError(f"The initial guess is NaN: {x0}.")
        if not np.all((x0 >= lower) & (x0 <= upper)):
            raise ValueError("Initial guess is outside of provided bounds")
        if x_scale is None:
            x_scale = "jac" if others["method"] == "lm" else 1.0
        return cls(
            **{
                **others,
                "x0": x0,
                "lower": lower,
                "upper": upper,
                "scale": _scale(x_scale, x0),
                "max_nfev": 100 * x0.size if max_nfev is None else int(max_nfev),
                "tolerances": _tolerances(others["tolerances"], others["method"]),
                "tr_options": dict(others["tr_options"] or {}),
            }
        )

    @property
    def bounded(self) -> bool:
        """Whether there is a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())


def _check_words(*, max_nfev: Any, **others: Any) -> None:
    if others["method"] not in ("trf", "dogbox", "lm"):
        raise ValueError("`method` must be 'trf', 'dogbox' or 'lm'.")
    jac, loss = others["jac"], others["loss"]
    if not callable(jac) and jac not in SCHEMES:
        raise ValueError("`jac` must be '2-point', '3-point', 'cs' or callable.")
    if others["tr_solver"] not in (None, "exact", "lsmr"):
        raise ValueError("`tr_solver` must be None, 'exact' or 'lsmr'.")
    if not callable(loss) and loss not in LOSSES:
        raise ValueError(f"`loss` must be one of {LOSSES.keys()} or a callable.")
    if others["method"] == "lm" and loss != "linear":
        raise ValueError("method='lm' supports only 'linear' loss function.")
    if others["verbose"] not in (0, 1, 2):
        raise ValueError("`verbose` must be in [0, 1, 2].")
    if max_nfev is not None and max_nfev <= 0:
        raise ValueError("`max_nfev` must be None or positive integer.")


def box_of(bounds: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds, a number for each parameter."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        bounds = (bounds.lb, bounds.ub)
    if len(bounds) != 2:
        raise ValueError("`bounds` must contain 2 elements.")
    lower, upper = (np.asarray(side, dtype=float) for side in bounds)
    return (
        np.full(k, lower) if lower.ndim == 0 else lower,
        np.full(k, upper) if upper.ndim == 0 else upper,
    )


def _scale(x_scale: Any, x0: np.ndarray) -> np.ndarray | None:
    if isinstance(x_scale, str) and x_scale == "jac":
        return None
    words = "`x_scale` must be 'jac' or array_like with positive numbers."
    if isinstance(x_scale, str) or np.iscomplexobj(x_scale):
        raise ValueError(words)
    values = np.asarray(x_scale, dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(words)
    values = np.full(x0.shape, values) if values.ndim == 0 else values
    if values.shape != x0.shape:
        raise ValueError("Inconsistent shapes between `x_scale` and `x0`.")
    return values


def _tolerances(given: tuple[Any, ...], method: str) -> tuple[float | None, ...]:
    for name, value in zip(("ftol", "xtol", "gtol"), given, strict=True):
        if value is not None and value < EPS and method != "lm":
            _outcome.warn(
                f"Setting `{name}` below the machine epsilon ({EPS:.2e}) effectively disables the"
                " corresponding termination condition."
            )
    kept = tuple(None if value is None or value < EPS else float(value) for value in given)
    if all(value is None for value in kept):
        raise ValueError(
            f"At least one of the tolerances must be higher than machine epsilon ({EPS:.2e})."
        )
    return kept


@dataclass(frozen=True)
class Functions:
    """What is evaluated: in NumPy, and as traced programs where JAX can trace it."""

    host: Callable[[np.ndarray], np.ndarray]
    host_jac: Callable[[np.ndarray], Any] | None
    f0: np.ndarray
    fun: Traced | None
    jac: Traced | None
    loss: str | Traced | None
    read: tuple[tuple[Any, ...], tuple[Any, ...]]
    why: str
    products: bool  # a Jacobian that is sparse or an operator is that of the traced function
    spent: Spent  # calls of `fun` with NumPy's arrays
    differences: Spent  # those of them that a Jacobian by differences needs

    @property
    def compiled(self) -> bool:
        """Whether all of it can be one program."""
        return (
            self.fun is not None
            and self.loss is not None
            and (self.host_jac is None or self.jac is not None or self.products)
        )


def fitted(call: Call, fun: Callable[..., Any], jac: Any) -> tuple[OptimizeResult, float]:
    """Fit, and give what SciPy gives, and the rounding unit of the derivatives."""
    begin = time.perf_counter()
    with jax.enable_x64(True):
        x0 = call.x0
        if call.bounded:
            x0 = np.array(
                off_bounds(
                    jnp.asarray(x0), Bounds(jnp.asarray(call.lower), jnp.asarray(call.upper)), 1e-10
                )
            )
        functions = _functions(call, x0, fun, jac)
    on_host = call.callback is not None or call.verbose == 2 or not functions.compiled
    by = _by_host if on_host else _by_products if _is_large(call, functions) else _by_program
    try:
        end = by(call, functions, x0)
    finally:
        if functions.why:
            took = cost(time.perf_counter() - begin, functions.spent, functions.differences)
            _outcome.warn(f"{functions.why}\n{took}", NotTraced)
    result = _result(call, functions, *end)
    if call.verbose:
        initial, _, _ = _weigh(call, functions, functions.f0, np.zeros((functions.f0.size, 0)))
        print(result.message)
        print(
            f"Function evaluations {result.nfev}, initial cost {initial:.4e}, final cost"
            f" {result.cost:.4e}, first-order optimality {result.optimality:.2e}."
        )
    differ = functions.fun is None and functions.host_jac is None
    return result, EPS**0.5 if differ and call.jac != "cs" else _unit(functions.f0)


def _functions(call: Call, x0: np.ndarray, fun: Callable[..., Any], jac: Any) -> Functions:
    """Call each function once with numbers, then trace it, and compare."""
    spent = Spent(lambda x: np.atleast_1d(fun(x)))
    host = _last(spent)
    f0 = host(x0)
    if f0.ndim != 1:
        raise ValueError(f"`fun` must return at most 1-d array_like. f0.shape: {f0.shape}")
    if np.iscomplexobj(f0):
        raise ValueError("`fun` must return real numbers.")
    if not np.all(np.isfinite(f0)):
        raise ValueError("Residuals are not finite in the initial point.")
    m, k = f0.size, x0.size
    if call.method == "lm" and m < k:
        raise ValueError(
            "Method 'lm' doesn't work when the number of residuals is less than the number of"
            " variables."
        )
    own = _last(jac) if callable(jac) else None
    J0 = None if own is None else own(x0)
    _check_jacobian(call, J0, m, k)
    dense = own is not None and not _is_loose(J0)
    rows = max(k - m, 0)
    why = []
    made, read = _tried("fun", fun, x0, f0, 0, rows, why)
    own_jac, jac_read = None, ()
    if dense:
        own_jac, jac_read = _tried("jac", jac, x0, np.atleast_2d(J0), 1, rows, why)
    loss = call.loss
    if callable(loss):
        given = np.asarray(loss((f0 / call.f_scale) ** 2))
        if given.shape != (3, m):
            raise ValueError("The return value of `loss` callable has wrong shape.")
        loss = _tried_loss(loss, f0.size + rows, why)
    products = own is not None and not dense and made is not None and _agree(made, read, x0, J0, m)
    reads = (read, jac_read)
    text, differences = "\n".join(why), Spent(host)
    return Functions(host, own, f0, made, own_jac, loss, reads, text, products, spent, differences)


def _agree(made: Traced, read: tuple[Any, ...], x0: np.ndarray, J0: Any, m: int) -> bool:
    """Tell whether a sparse Jacobian or an operator is the derivative of the traced function, by
    its product with a direction.
    """
    along = 1.5 + np.cos(np.arange(x0.size))
    expected = pushed(made)(jnp.asarray(x0), jnp.asarray(along), read, ())
    expected, given = np.asarray(expected)[:m], np.asarray(J0 @ along)
    return np.allclose(
        given, expected, rtol=1e-5, atol=1e-5 * np.max(np.abs(expected), initial=0.0)
    )


def _last(fun: Callable[..., Any]) -> Callable[[np.ndarray], Any]:
    """The function, which is not called again where it was called last."""
    seen: list[Any] = []

    def called(x: np.ndarray) -> Any:
        if not seen or seen[0].dtype != x.dtype or not np.array_equal(seen[0], x):
            seen[:] = [np.copy(x), fun(np.copy(x))]
        return seen[1]

    return called


def _is_loose(J: Any) -> bool:
    return scipy.sparse.issparse(J) or isinstance(J, LinearOperator)


def _check_jacobian(call: Call, J: Any, m: int, k: int) -> None:
    if J is not None and not _is_loose(J):
        J = np.atleast_2d(J)
    if J is None and call.jac_sparsity is not None:
        if call.method == "lm":
            raise ValueError("method='lm' does not support `jac_sparsity`.")
        sparsity = call.jac_sparsity
        shape = sparsity.shape if scipy.sparse.issparse(sparsity) else np.atleast_2d(sparsity).shape
        if shape != (m, k):
            raise ValueError("`jac_sparsity` has wrong shape.")
        if call.tr_solver == "exact":
            raise ValueError("tr_solver='exact' is incompatible with `jac_sparsity`.")
    if J is not None and J.shape != (m, k):
        raise ValueError(
            f"The return value of `jac` has wrong shape: expected {(m, k)}, actual {J.shape}."
        )
    if J is not None and _is_loose(J):
        if call.method == "lm":
            raise ValueError("method='lm' works only with dense Jacobian matrices.")
        if call.tr_solver == "exact":
            raise ValueError("tr_solver='exact' works only with dense Jacobian matrices.")
        if isinstance(J, LinearOperator) and call.scale is None:
            raise ValueError("x_scale='jac' can't be used when `jac` returns LinearOperator.")
    if call.tr_solver == "lsmr" or (call.tr_solver is None and J is not None and _is_loose(J)):
        unknown = sorted(set(call.tr_options) - LSMR)
        if unknown:
            raise TypeError(f"lsmr() got an unexpected keyword argument {unknown[0]!r}")


def _tried(
    name: str,
    fun: Callable[..., Any],
    x0: np.ndarray,
    expected: np.ndarray,
    i: int,
    rows: int,
    why: list[str],
) -> tuple[Traced | None, tuple[Any, ...]]:
    """The function traced, if it then gives what it gives in NumPy."""
    made_of = (lambda x: fun(x)) if name == "fun" else _as_matrix(fun)
    try:
        made, read = traced(made_of, x0, i, rows)
        found = np.asarray(compiled(made)(jnp.asarray(x0), *((), read)[1 - i :]))[: len(expected)]
    except REFUSED as error:
        why.append(_not_traced(name, f"{type(error).__name__}: {error}"))
        return None, ()
    size = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    unit = max(np.finfo(found.dtype).eps if found.dtype.kind == "f" else EPS, _unit(expected))
    if found.dtype.kind != "f" or found.shape != expected.shape:
        why.append(_not_traced(name, f"traced, it gives {found.dtype}{list(found.shape)}"))
        return None, ()
    if not np.allclose(found, expected, rtol=1e5 * unit, atol=1e5 * unit * size, equal_nan=True):
        why.append(_not_traced(name, "traced, it gives other numbers"))
        return None, ()
    return made, read


def _unit(values: np.ndarray) -> float:
    return float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else EPS


def _as_matrix(jac: Callable[..., Any]) -> Callable[..., Any]:
    def matrix(x: Any) -> Any:
        made = jac(x)
        return made if np.ndim(made) == 2 else made.reshape(1, -1) if np.ndim(made) else made

    return matrix


def _tried_loss(loss: Callable[..., Any], m: int, why: list[str]) -> Traced | None:
    try:
        return whole(loss, np.linspace(0.0, 2.0, m))
    except REFUSED as error:
        why.append(_not_traced("loss", f"{type(error).__name__}: {error}"))
        return None


def _not_traced(name: str, reason: str) -> str:
    first = reason.partition("\n")[0]
    return (
        f"`{name}` cannot be traced by JAX ({first}), so it is called with NumPy's arrays, step by"
        " step, and derivatives that are not given are differences: one call more for each"
        " parameter at each step.\nFix: write what depends on the parameters with jax.numpy, or"
        " with NumPy's functions of whole arrays."
    )


def _is_large(call: Call, functions: Functions) -> bool:
    """Tell whether SciPy would take `lsmr`, with options that ours has."""
    asked = call.tr_solver == "lsmr" or call.jac_sparsity is not None or functions.products
    own = functions.jac is not None or call.method == "lm" or call.tr_solver == "exact"
    return asked and not own and set(call.tr_options) <= set(INNER)


def _by_products(call: Call, functions: Functions, x0: np.ndarray) -> End:
    """One compiled program without a dense Jacobian, where the structure of a sparse one is known
    from the function.
    """
    fun, floats = positioned(functions.fun, functions.read[0])
    loss, bounded = functions.loss, call.bounded
    setup = Setup(fun, None, loss, bounded, call.scale is None, None)
    tolerances = tuple(tolerance or 0.0 for tolerance in call.tolerances)
    box = (call.lower, call.upper) if bounded else (None, None)
    atol, btol, turns = (call.tr_options.get(name, value) for name, value in INNER.items())
    turns = x0.size if turns is None else turns
    with jax.enable_x64(True):
        controls = jnp.asarray((*tolerances, call.f_scale, float(call.max_nfev)))
        data = Data(*box, call.scale, controls, None, (floats,), {})
        try:
            fit = large.run(setup, x0, data, (atol, btol, turns))
            J = fit.unweighted
        except DerivativeError:  # positions that floats decide
            return _by_program(call, functions, x0)
    m = functions.f0.size
    return fit.x, fit.nfev, fit.njev, fit.status, (fit.fun[:m], J[:m])


def _by_program(call: Call, functions: Functions, x0: np.ndarray) -> End:
    """One compiled program."""
    numbers = (*call.tolerances, call.f_scale, call.max_nfev)
    scale = "jac" if call.scale is None else call.scale
    request = Request(
        functions.fun,
        functions.jac,
        functions.loss,
        scale,
        False,
        numbers,
        (),
        quiet=True,
        cosine=call.method == "lm",
    )
    box = (call.lower, call.upper) if call.bounded else (-np.inf, np.inf)
    fit = run(request, x0, box, None, functions.read, {})
    return fit.x, fit.nfev, fit.njev, fit.status, _raw(call, functions, fit.x)


def _raw(call: Call, functions: Functions, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and their exact Jacobian, without the weights of a loss."""
    setup = Setup(functions.fun, functions.jac, "linear", call.bounded, False, None)
    data = _data(functions)
    with jax.enable_x64(True):
        f, J = jax.device_get(programs(setup).evaluate(x, data))
    m = functions.f0.size
    return f[:m], J[:m]


def _data(functions: Functions) -> Data:
    return Data(None, None, None, np.zeros(5), None, functions.read, {})


def _by_host(call: Call, functions: Functions, x0: np.ndarray) -> End:
    """Step by step."""

    def fun(x: np.ndarray) -> np.ndarray:
        return np.asarray(functions.host(x), float)

    jacobian = _last(_jacobian(call, functions))
    each = _each(call)
    problem = _host.Problem(
        fun,
        lambda x, f: jacobian(x),
        lambda f, J: _weigh(call, functions, f, J),
        call.lower,
        call.upper,
        call.scale,
        (*(tolerance or 0.0 for tolerance in call.tolerances), call.f_scale, float(call.max_nfev)),
        each,
        call.method == "lm",
    )
    end = _host.run(problem, x0)
    if end.status == -1:
        raise ValueError("The Jacobian is not finite in the initial point.")
    f = fun(end.x)
    return end.x, end.nfev, end.njev, end.status, (f, jacobian(end.x))


def _jacobian(call: Call, functions: Functions) -> Callable[[np.ndarray], np.ndarray]:
    """The dense Jacobian, by the best that there is."""
    own = functions.host_jac
    if own is not None:
        return lambda x: _dense(own(x), x.size)
    if functions.fun is not None:
        return lambda x: _raw(call, functions, x)[1]
    box = (call.lower, call.upper)
    return lambda x: np.asarray(
        _host.differences(
            functions.differences,
            x,
            np.asarray(functions.host(x)),
            call.jac,
            call.diff_step,
            box,
        ),
        float,
    )


def _dense(J: Any, k: int) -> np.ndarray:
    if scipy.sparse.issparse(J):
        return J.toarray()
    return np.asarray(J @ np.eye(k) if isinstance(J, LinearOperator) else np.atleast_2d(J), float)


def _weigh(
    call: Call, functions: Functions, f: np.ndarray, J: Any
) -> tuple[float, np.ndarray, Any]:
    """Cost, and residuals and Jacobian with the weights of the loss, as SciPy has them."""
    if call.loss == "linear":
        return 0.5 * float(f @ f), f, J
    z = (f / call.f_scale) ** 2
    if callable(call.loss):
        rho = np.array(call.loss(z), float)
    else:
        with jax.enable_x64(True):
            rho = np.stack([np.asarray(part) for part in rho_of(call.loss)(jnp.asarray(z))])
    rho[0] *= call.f_scale**2
    rho[2] /= call.f_scale**2
    weight = rho[1] + 2 * rho[2] * f**2
    weight[weight < EPS] = EPS
    weight **= 0.5
    return 0.5 * float(np.sum(rho[0])), f * (rho[1] / weight), _rows_times(weight, J)


def _rows_times(weight: np.ndarray, J: Any) -> Any:
    if scipy.sparse.issparse(J):
        return scipy.sparse.diags_array(weight) @ J
    return J * weight[:, None]


def _each(call: Call) -> Callable[[_host.Turn], bool]:
    """Print a line where that is asked for, and call the callback."""
    before: list[float] = []
    if call.verbose == 2:
        names = ("Iteration", "Total nfev", "Cost", "Cost reduction", "Step norm", "Optimality")
        print("".join(f"{name:^15}" for name in names))
    parameters = set() if call.callback is None else set(_parameters(call.callback))

    def each(turn: _host.Turn) -> bool:
        if call.verbose == 2:
            changed = [before[0] - turn.cost, turn.step] if before else []
            cells = [f"{value:^15.2e}" for value in changed] or [" " * 15] * 2
            print(
                f"{turn.nit:^15}{turn.nfev:^15}{turn.cost:^15.4e}{''.join(cells)}"
                f"{turn.optimality:^15.2e}"
            )
            before[:] = [turn.cost]
        if call.callback is None or turn.nit == 0:
            return False
        try:
            if parameters == {"intermediate_result"}:
                kept = {name: getattr(turn, name) for name in ("x", "fun", "nit", "nfev", "cost")}
                call.callback(intermediate_result=OptimizeResult(**kept))
            else:
                call.callback(np.copy(turn.x))
        except StopIteration:
            return True
        return False  # whatever it gives, as in SciPy, though its message says `True`

    return each


@cache
def _parameters(fun: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(fun).parameters)


def _result(
    call: Call,
    functions: Functions,
    x: np.ndarray,
    nfev: int,
    njev: int,
    status: int,
    both: tuple[np.ndarray, Any],
) -> OptimizeResult:
    """SciPy's fields."""
    f, raw = np.array(both[0]), both[1]
    cost, weighted, J = _weigh(call, functions, f, raw)
    g = J.T @ weighted
    to_upper, to_lower = (g < 0) & np.isfinite(call.upper), (g > 0) & np.isfinite(call.lower)
    distance = np.where(to_upper, call.upper - x, np.where(to_lower, x - call.lower, 1.0))
    holds = np.zeros(x.size, int)
    if call.bounded:
        with jax.enable_x64(True):
            bounds = Bounds(jnp.asarray(call.lower), jnp.asarray(call.upper))
            holds = np.asarray(active(jnp.asarray(x), bounds, call.tolerances[1] or 0.0))
    return OptimizeResult(
        x=np.array(x),
        cost=np.float64(cost),
        fun=f,
        jac=_as_given(call, functions, x, J),
        grad=g,
        optimality=np.max(np.abs(g * distance)),
        active_mask=holds.astype(int),
        nfev=nfev,
        njev=njev,
        status=status,
        message=STOPPED if status == _host.STOPPED else MESSAGES[status],
        success=status > 0,
    )


def _as_given(call: Call, functions: Functions, x: np.ndarray, J: np.ndarray) -> Any:
    """The Jacobian in the form that the user has it."""
    given = None if functions.host_jac is None else functions.host_jac(x)
    if isinstance(given, LinearOperator) and call.loss == "linear":
        return given
    if scipy.sparse.issparse(given) or (given is None and call.jac_sparsity is not None):
        return scipy.sparse.csr_array(J)
    return J.toarray() if scipy.sparse.issparse(J) else J
