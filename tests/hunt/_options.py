"""What jitney is asked for: of each option, how a program is run under it, and the plain JAX that
it must equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitney
from jitney import optimize

from ._program import Program
from ._sizes import pick

Arrays = Mapping[str, Any]
Runner = Callable[[Arrays], Any]
DEVICES = 8


@dataclass(frozen=True)
class Way:
    """One way to run a function.

    Args:
        ours: By jitney.
        theirs: By plain JAX.
        refusal: Why jitney does not do what was asked for, from a plan, before anything is
            compiled; None if it does.
        code: The line of a script that makes `g` of `f`, and the call of it.
        reference: What `theirs` does, by name; runs of one name share their results.
        equal: How exact results can be at best.
        reshaped: What becomes of the arguments first.
    """

    ours: Runner
    theirs: Runner
    code: str
    refusal: Callable[[Arrays], str | None] = lambda arrays: None
    reference: str = "plain"
    equal: str = "bits"
    reshaped: Callable[[Arrays], Arrays] = dict
    shown: Program | None = None  # where it is not the program itself that is run
    # whether what is not finite may spread, or be no more, as docs/derivatives.md says of passes
    # that are shared
    blurred: bool = False
    # The same by `jax.vmap`, where plain JAX has another program for a batch.
    batched: Runner | None = None


Make = Callable[[Any, Callable[..., Any], Program, int], Way | None]


def plain(fn: Callable[..., Any]) -> Runner:
    jitted = jax.jit(fn)
    return lambda arrays: jitted(**arrays)


def _filled(program: Any) -> Callable[[Arrays], str | None]:
    """The plan of a padded program says why it runs at exact size."""

    def refusal(arrays: Arrays) -> str | None:
        for decision in program.plan(**arrays).to_dict()["decisions"]:
            if (
                decision["name"] == "fill"
                and not decision["taken"]
                and "at exact size: " in decision["why"]
            ):
                return decision["why"].partition("at exact size: ")[2]
        return None

    return refusal


def _planned(program: Any) -> Callable[[Arrays], str | None]:
    """The plan raises what the call would."""

    def refusal(arrays: Arrays) -> str | None:
        try:
            program.plan(**arrays)
        except jitney.JitneyError as error:
            return str(error).splitlines()[0]
        return None

    return refusal


def pad(rng: Any, fn: Any, program: Program, n: int) -> Way:
    buckets = pick(
        rng,
        (
            "pow2",
            "pow2",
            [n + int(rng.integers(0, 5))] if n > 1 else "pow2",
            "aligned" if n < 300 else "pow2",
        ),
    )
    padded = optimize(pad={"n": buckets})(fn)
    theirs = plain(fn)
    axes = {name: text.split() for name, text in program.takes}
    is_cut = all(size == "n" or "n" not in size for each in axes.values() for size in each)
    least = int(rng.integers(2, n)) if is_cut and n > 2 and rng.random() < 0.5 else n

    def ours(arrays: Arrays) -> Any:
        if least < n:
            _call_at(
                padded, theirs, {name: _cut(x, axes[name], least) for name, x in arrays.items()}
            )
        return padded(**arrays)

    first = f" first at n={least}" if least < n else ""
    return Way(
        ours,
        theirs,
        f'optimize(pad={{"n": {buckets!r}}})(f){first}',
        _filled(padded),
    )


def pad_file(rng: Any, fn: Any, program: Program, n: int) -> Way:
    """A padded program from a file, which was exported at another size of its bucket."""
    buckets = pick(rng, ("pow2", [n + int(rng.integers(0, 5))] if n > 1 else "pow2"))
    padded, theirs = optimize(pad={"n": buckets})(fn), plain(fn)
    axes = {name: text.split() for name, text in program.takes}
    is_cut = all(size == "n" or "n" not in size for each in axes.values() for size in each)
    low = 2 if buckets != "pow2" else (1 << (n - 1).bit_length()) // 2 + 1
    least = int(rng.integers(low, n)) if is_cut and n > low and rng.random() < 0.7 else n

    def ours(arrays: Arrays) -> Any:
        cut = {name: _cut(x, axes[name], least) for name, x in arrays.items()}
        with TemporaryDirectory() as folder:
            padded.export(Path(folder) / "f.jitney", **cut)
            return jitney.load(Path(folder) / "f.jitney")(**arrays)

    def refusal(arrays: Arrays) -> str | None:
        try:
            ours(arrays)
        except jitney.errors.ExportError as error:
            return str(error).splitlines()[0]
        except jitney.errors.ContractError as error:
            # Exported at exact size, or Python does something else at this one.
            refused = ("no exported program takes", "its Python has not been looked at")
            return str(error) if any(text in str(error) for text in refused) else None
        return None

    first = f" exported at n={least}"
    return Way(ours, theirs, f'optimize(pad={{"n": {buckets!r}}})(f){first}', refusal)


def _cut(x: Any, axes: list[str], size: int) -> Any:
    return x[tuple(slice(size) if axis == "n" else slice(None) for axis in axes)]


def _call_at(padded: Callable[..., Any], theirs: Runner, arrays: Arrays) -> None:
    """Call a program at another size of its bucket, for which it is then traced, unless plain JAX
    has an error there.
    """
    try:
        theirs(arrays)
    except Exception:  # noqa: BLE001
        return
    padded(**arrays)


def chunk(rng: Any, fn: Any, program: Program, n: int) -> Way:
    size = _chunk(rng, n)
    cut = optimize(chunk={"n": size})(fn)
    return Way(
        lambda arrays: cut(**arrays),
        plain(fn),
        f'optimize(chunk={{"n": {size}}})(f)',
        _planned(cut),
        equal="close",
    )


def stream(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    if n == 0:
        return None
    size, made = _chunk(rng, n), optimize(fn)
    planned = optimize(chunk={"n": size})(fn)
    return Way(
        lambda arrays: jitney.stream(made, **arrays, chunk={"n": size}, progress=False).result,
        plain(fn),
        f'(lambda **a: jitney.stream(optimize(f), **a, chunk={{"n": {size}}}, progress=False).result)',
        _planned(planned),
        equal="close",
    )


def _chunk(rng: Any, n: int) -> int:
    if n > 1000:
        return int(pick(rng, (n // 3 + 1, n // 2, 1024, n)))
    return int(pick(rng, (1, 2, 3, 5, 8, max(n, 1), max(n - 1, 1), n + 1)))


def _stacked(arrays: Arrays, copies: int) -> Arrays:
    """Each array several times, the others turned, so that no two are the same."""
    return {name: np.stack([np.roll(x, k) for k in range(copies)]) for name, x in arrays.items()}


def _mapped(rng: Any, fn: Any, program: Program, n: int, **options: Any) -> Way:
    copies = int(pick(rng, (1, 2, 3, 5)))
    made = optimize(vmap="b", **options)(fn)
    inner = jax.jit(lambda arrays: jax.vmap(lambda a: fn(**a))(arrays))
    text = "".join(f", {name}={value!r}" for name, value in options.items())
    refusal = _filled(made) if "pad" in options else _planned(made)
    return Way(
        lambda arrays: made(**arrays),
        inner,
        f'optimize(vmap="b"{text})(f)',
        refusal,
        f"mapped {copies}",
        "close",
        partial(_stacked, copies=copies),
    )


def vmap(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return _mapped(rng, fn, program, n)


def vmap_pad(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return _mapped(rng, fn, program, n, pad={str(pick(rng, "nb")): "pow2"})


def vmap_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return _mapped(
        rng,
        fn,
        program,
        n,
        chunk={"n": _chunk(rng, n)} if rng.random() < 0.6 else {"b": int(pick(rng, (1, 2)))},
    )


def vmap_workers(rng: Any, fn: Any, program: Program, n: int) -> Way:
    options: dict[str, Any] = {"workers": int(pick(rng, (2, 2, 3)))}
    if rng.random() < 0.4:
        options["chunk"] = {"b": "fast" if rng.random() < 0.3 else int(pick(rng, (1, 2)))}
    return _mapped(rng, fn, program, n, **options)


def shard(rng: Any, fn: Any, program: Program, n: int, **options: Any) -> Way | None:
    if n % DEVICES or n == 0 or len(jax.devices()) < DEVICES:
        return None
    mesh = jitney.mesh(data=-1)
    made = optimize(shard={"n": "data"}, mesh=mesh, **options)(fn)
    text = "".join(f", {name}={value!r}" for name, value in options.items())
    code = f'optimize(shard={{"n": "data"}}, mesh=jitney.mesh(data=-1){text})(f)'
    return Way(lambda arrays: made(**arrays), plain(fn), code, _planned(made), equal="close")


def shard_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return shard(rng, fn, program, n, chunk={"n": int(pick(rng, (1, 2, 3, max(n // DEVICES, 1))))})


def shard_optional(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """Without a mesh, and within one: the second call comes after one of the other kind."""
    if n % DEVICES or n == 0 or len(jax.devices()) < DEVICES:
        return None
    cut = {"chunk": {"n": int(pick(rng, (1, 2, 3)))}} if rng.random() < 0.3 else {}
    made, is_last_within = (
        optimize(shard={"n": "*"}, mesh="optional", **cut)(fn),
        bool(rng.random() < 0.5),
    )
    text = "".join(f", {name}={value!r}" for name, value in cut.items())

    def called(arrays: Arrays) -> Any:
        for within in (not is_last_within, is_last_within):
            with jitney.mesh(data=-1) if within else nullcontext():
                out = jax.block_until_ready(made(**arrays))
        return out

    def refusal(arrays: Arrays) -> str | None:
        with jitney.mesh(data=-1):
            within = _planned(made)(arrays)
        return within or _planned(made)(arrays)

    return Way(
        called,
        plain(fn),
        f'optimize(shard={{"n": "*"}}, mesh="optional"{text})(f)',
        refusal,
        equal="close",
    )


PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")


def precision(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """Products of small whole numbers are exact in any type, and the rest is left alone; float32 of
    float32 changes nothing at all.
    """
    value = str(pick(rng, ("bf16", "tf32", "f32")))
    made = optimize(precision=value)(fn)

    def ours(arrays: Arrays) -> Any:
        if value != "tf32" and not all(
            x.dtype == np.float32 for x in arrays.values() if jnp.issubdtype(x.dtype, jnp.floating)
        ):
            raise NotFloatingError
        if (
            value != "f32"
            and len(program.lines) > 1
            and any(e.primitive.name in PRODUCTS for e in equations(jax.make_jaxpr(fn)(**arrays)))
        ):
            raise NotFloatingError
        return made(**arrays)

    return Way(
        ours,
        plain(fn),
        f"optimize(precision={value!r})(f)",
        _planned(made),
        reference="small",
        reshaped=_small,
    )


def _small(arrays: Arrays) -> Arrays:
    with np.errstate(all="ignore"):
        return {
            name: np.rint(np.clip(np.nan_to_num(x.astype(np.float32)), -2, 2)).astype(x.dtype)
            if jnp.issubdtype(x.dtype, jnp.floating)
            else x
            for name, x in arrays.items()
        }


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every operation of a program and of those inside it."""
    program = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in program.eqns:
        yield eqn
        for value in eqn.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(part, "jaxpr", part), "eqns"):
                    yield from equations(part)


def precision_f64(rng: Any, fn: Any, program: Program, n: int, **options: Any) -> Way:
    """In float64, of arguments that are cast; results are compared in the types of the plain
    program.
    """
    made = optimize(precision="f64", **options)(fn)
    text = "".join(f", {name}={value!r}" for name, value in options.items())

    def as_plain(arrays: Arrays, out: Any) -> Any:
        like = jax.tree.leaves(jax.eval_shape(fn, **arrays))
        return [
            np.asarray(leaf).astype(aval.dtype)
            for leaf, aval in zip(jax.tree.leaves(out), like, strict=True)
        ]

    def ours(arrays: Arrays) -> Any:
        if not any(x.dtype == np.float32 for x in arrays.values()):
            raise NotFloatingError
        return as_plain(arrays, made(**arrays))

    def theirs(arrays: Arrays) -> Any:
        with jax.enable_x64(True):
            wide = {
                name: jnp.asarray(x, np.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x
                for name, x in arrays.items()
            }
            out = jax.jit(fn)(**wide)
        return as_plain(arrays, out)

    return Way(
        ours, theirs, f'optimize(precision="f64"{text})(f)', _refusal(made, options), "f64", "close"
    )


def precision_pad(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return precision_f64(rng, fn, program, n, pad={"n": "pow2"})


def precision_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way:
    return precision_f64(rng, fn, program, n, chunk={"n": _chunk(rng, n)})


def remat(rng: Any, fn: Any, program: Program, n: int) -> Way:
    made = optimize(remat=True)(fn)
    return Way(lambda arrays: made(**arrays), plain(fn), "optimize(remat=True)(f)")


def roll(rng: Any, fn: Any, program: Program, n: int) -> Way:
    """Below another program, where a loop may be differentiated and layers are looked for
    everywhere.
    """
    made = optimize(roll="auto")(fn)
    under = jax.jit(lambda arrays: made(**arrays))
    return Way(
        lambda arrays: under(dict(arrays)), plain(fn), 'optimize(roll="auto")(f)', equal="close"
    )


def _refusal(made: Any, options: Mapping[str, Any]) -> Callable[[Arrays], str | None]:
    return _filled(made) if "pad" in options else _planned(made)


def bare(rng: Any, fn: Any, program: Program, n: int) -> Way:
    made = optimize(fn)
    return Way(lambda arrays: made(**arrays), plain(fn), "optimize(f)")


# Derivatives: of a number made of the results, or of a result.


def _derivative(
    kind: str, rng: Any, fn: Any, program: Program, n: int, **options: Any
) -> Way | None:
    """With respect to one argument, of a function that returns one array."""
    if len(program.gives) > 1 or n > MOST_DIFFERENTIATED.get(kind, 10**9):
        return None
    number = kind in ("grad", "value_and_grad", "hessian", "hvp")
    of = (
        program.number()
        if number
        else Program(program.takes, program.lines, program.gives, bare=True)
    )
    body = of.compiled()
    keywords: dict[str, Any] = {}
    if kind == "jacobian":
        keywords["mode"] = str(pick(rng, ("auto", "forward", "reverse", "coloured", "coloured")))
    made = jitney.lazy_derivatives(optimize(**options)(body) if options else body, **keywords)
    start = int(rng.integers(8))

    def wrt(arrays: Arrays) -> str:
        floating = [
            name for name, _ in program.takes if jnp.issubdtype(arrays[name].dtype, jnp.floating)
        ]
        if not floating:
            raise NotFloatingError
        return floating[start % len(floating)]

    def moved(arrays: Arrays, name: str) -> Any:
        return jnp.asarray(
            np.resize(np.arange(1, 6), arrays[name].shape).astype(arrays[name].dtype)
        )

    def cotangent(arrays: Arrays) -> Any:
        return jax.tree.map(
            lambda out: jnp.ones(out.shape, out.dtype), jax.eval_shape(body, **arrays)
        )

    def ours(arrays: Arrays) -> Any:
        name = wrt(arrays)
        given = dict(arrays)
        if kind in ("jvp", "hvp"):
            return getattr(made, kind)(**given, wrt=name, tangents=moved(arrays, name))
        if kind == "vjp":
            return made.vjp(**given, wrt=name, cotangent=cotangent(arrays))
        if kind == "linearize":
            value, linear = made.linearize(**given, wrt=name)
            return value, linear(moved(arrays, name))
        return getattr(made, kind)(**given, wrt=name)

    def theirs(arrays: Arrays) -> Any:
        name = wrt(arrays)
        # NumPy's own product of a small float of eight or sixteen bits is of another dtype.
        rest = {each: jnp.asarray(x) for each, x in arrays.items() if each != name}
        fn = lambda x: body(**rest, **{name: x})
        x = jnp.asarray(arrays[name])
        if kind in ("jvp", "linearize"):
            return jax.jit(lambda x: jax.jvp(fn, (x,), (moved(arrays, name),)))(x)
        if kind == "hvp":
            return jax.jit(lambda x: jax.jvp(jax.grad(fn), (x,), (moved(arrays, name),))[1])(x)
        if kind == "vjp":
            return jax.jit(
                lambda x: (lambda out, back: (out, back(cotangent(arrays))[0]))(*jax.vjp(fn, x))
            )(x)
        if kind == "jacobian":
            return jax.jit(jax.jacrev(fn) if keywords["mode"] == "reverse" else jax.jacfwd(fn))(x)
        return jax.jit(
            {"grad": jax.grad, "value_and_grad": jax.value_and_grad, "hessian": jax.hessian}[kind](
                fn
            )
        )(x)

    def refusal(arrays: Arrays) -> str | None:
        name = wrt(arrays)
        if kind in ("linearize", "jvp", "hvp", "vjp") or "pad" not in options:
            return None
        return _filled(getattr(made, kind).program(wrt=name))(arrays)

    wrapped = (
        f"optimize({', '.join(f'{k}={v!r}' for k, v in options.items())})(f)" if options else "f"
    )
    extra = "".join(f", {k}={v!r}" for k, v in keywords.items())
    return Way(
        ours,
        theirs,
        f"jitney.lazy_derivatives({wrapped}{extra}).{kind}",
        refusal,
        "alone",
        "close",
        shown=of,
        blurred=kind in ("jacobian", "hessian"),
    )


def outer_pad(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """JAX's own derivatives of a padded function, outside of any `jit`."""
    return _outer(rng, fn, program, n, "pad", "pow2")


def outer_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """JAX's own derivatives of a function in chunks."""
    return _outer(rng, fn, program, n, "chunk", _chunk(rng, n))


def _outer(rng: Any, fn: Any, program: Program, n: int, option: str, how: Any) -> Way | None:
    kind = str(pick(rng, ("grad", "jvp", "vjp", "map of grad", "vjp of map")))
    way = _derivative(
        "jvp" if kind == "jvp" else "vjp" if kind.startswith("vjp") else "grad", rng, fn, program, n
    )
    if way is None or way.shown is None:
        return None
    body = way.shown.compiled()
    ours = optimize(**{option: {"n": how}})(body)
    start = int(rng.integers(8))

    def parts(arrays: Arrays) -> tuple[Any, tuple[Any, ...]]:
        names = tuple(
            name for name, _ in program.takes if jnp.issubdtype(arrays[name].dtype, jnp.floating)
        )
        if not names:
            raise NotFloatingError
        names = names if start % 3 == 0 else (names[start % len(names)],)
        rest = {name: x for name, x in arrays.items() if name not in names}
        return (lambda of: lambda *at: of(**rest, **dict(zip(names, at, strict=True)))), tuple(
            jnp.asarray(arrays[name]) for name in names
        )

    def transformed(of: Any, arrays: Arrays) -> Any:
        bound, at = parts(arrays)
        f = bound(of)
        along = tuple(jnp.asarray(np.resize(np.arange(1, 6), x.shape).astype(x.dtype)) for x in at)
        if kind == "jvp":
            return jax.jvp(f, at, along)
        # as many as a short axis has: an axis in the place of another one fits
        if kind == "vjp of map":
            count = n if 0 < n < MOST_MAPPED else 2
            f, at = (
                jax.vmap(f),
                tuple(jnp.stack([jnp.flip(x) if i % 2 else x for i in range(count)]) for x in at),
            )
        if kind.startswith("vjp"):
            out, back = jax.vjp(f, *at)
            return out, back(jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), out))
        grad = jax.grad(f, argnums=tuple(range(len(at))))
        if kind == "grad":
            return grad(*at)
        return jax.vmap(grad)(*(jnp.stack([x, jnp.flip(x)]) for x in at))

    theirs = jax.jit(lambda arrays: transformed(body, arrays))
    return Way(
        lambda arrays: transformed(ours, arrays),
        lambda arrays: theirs(dict(arrays)),
        f'{kind} by JAX of optimize({option}={{"n": {how!r}}})(f)',
        reference=f"outer {kind} {start}",
        equal="close",
        shown=way.shown,
    )


MOST_MAPPED = 16
MOST_DIFFERENTIATED = {"jacobian": 40, "hessian": 20}


class NotFloatingError(Exception):
    """There is nothing to differentiate with respect to."""


def _derived(kind: str) -> Make:
    return partial(_derivative, kind)


def grad_pad(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return _derivative(
        str(pick(rng, ("grad", "value_and_grad", "jvp", "vjp", "hvp"))),
        rng,
        fn,
        program,
        n,
        pad={"n": "pow2"},
    )


def jacobian_pad(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return _derivative("jacobian", rng, fn, program, n, pad={"n": "pow2"})


def grad_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return _derivative(
        str(pick(rng, ("grad", "value_and_grad", "jvp"))),
        rng,
        fn,
        program,
        n,
        chunk={"n": _chunk(rng, n)},
    )


def grad_remat(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return _derivative("grad", rng, fn, program, n, remat=True)


def grad_shard(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    if n % DEVICES or n == 0 or len(jax.devices()) < DEVICES:
        return None
    return _derivative("grad", rng, fn, program, n, shard={"n": "data"}, mesh=jitney.mesh(data=-1))


def accumulate(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    if len(program.gives) > 1 or n == 0:
        return None
    of = program.number()
    body = of.compiled()
    size = _chunk(rng, n)

    def parts(arrays: Arrays) -> tuple[str, ...]:
        floating = tuple(
            name for name, _ in program.takes if jnp.issubdtype(arrays[name].dtype, jnp.floating)
        )
        if not floating:
            raise NotFloatingError
        return floating

    def ours(arrays: Arrays) -> Any:
        return jitney.accumulate(body, axis="n", microbatch=size, wrt=parts(arrays))(**arrays)

    def theirs(arrays: Arrays) -> Any:
        names = parts(arrays)
        rest = {name: x for name, x in arrays.items() if name not in names}
        return jax.jit(jax.value_and_grad(lambda some: body(**rest, **some)))(
            {name: jnp.asarray(arrays[name]) for name in names}
        )

    def refusal(arrays: Arrays) -> str | None:
        return _planned(jitney.accumulate(body, axis="n", microbatch=size, wrt=parts(arrays)))(
            arrays
        )

    return Way(
        ours,
        theirs,
        f'jitney.accumulate(f, axis="n", microbatch={size})',
        refusal,
        "alone",
        "close",
        shown=of,
    )


def state(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """The arguments are fields, the results a derived field, read from a state that was made of its
    own vector.
    """
    annotations = {name: fn.__annotations__[name] for name, _ in program.takes}
    under = str(pick(rng, ("plain", "jit", "vector", "twice")))

    def ours(arrays: Arrays) -> Any:
        if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in arrays.values()):
            raise NotFloatingError
        kind = type(
            "S",
            (jitney.states.State,),
            {"__annotations__": annotations, "__module__": __name__, "y": _rule(fn, tuple(arrays))},
        )
        made = kind(**{name: jnp.asarray(x) for name, x in arrays.items()})
        if under == "jit":
            return jax.jit(lambda s: s.y)(made)
        if under == "vector":
            return jax.jit(lambda s: s.of(s.array).y)(made)
        if under == "twice":
            return jax.jit(
                lambda s: (kind(**{name: getattr(s, name) for name in arrays}).y, s.y)[1]
            )(made)
        return made.y

    return Way(ours, plain(fn), f"state of {under}", equal="close")


def _rule(fn: Any, names: tuple[str, ...]) -> Any:
    def y(self: Any) -> Any:
        return fn(**{name: getattr(self, name) for name in names})

    return jitney.states.derived(y)


@dataclass(frozen=True)
class Option:
    """How an option is used.

    Args:
        make: Makes the way of a program, or None where it does not apply.
        share: How often it is tried.
        together: Whether several programs go into one.
    """

    make: Make
    share: float = 1.0
    together: bool = True


OPTIONS: dict[str, Option] = {
    "pad": Option(pad, 4),
    "file": Option(pad_file, 0.5, together=False),
    "outer pad": Option(outer_pad, 2, together=False),
    "outer chunk": Option(outer_chunk, 2, together=False),
    "chunk": Option(chunk, 3),
    "stream": Option(stream, 1.5),
    "vmap": Option(vmap, 0.7),
    "vmap+pad": Option(vmap_pad, 1),
    "vmap+chunk": Option(vmap_chunk, 0.7),
    "vmap+workers": Option(vmap_workers, 0.5),
    "shard": Option(shard, 3),
    "shard+chunk": Option(shard_chunk, 3),
    "shard optional": Option(shard_optional, 1),
    "precision": Option(precision, 0.7),
    "f64": Option(precision_f64, 0.5),
    "f64+pad": Option(precision_pad, 0.5),
    "f64+chunk": Option(precision_chunk, 0.5),
    "remat": Option(remat, 0.2),
    "roll": Option(roll, 0.2),
    "bare": Option(bare, 0.2),
    "state": Option(state, 0.5),
    "accumulate": Option(accumulate, 1, together=False),
    "grad": Option(_derived("grad"), 0.3, together=False),
    "value_and_grad": Option(_derived("value_and_grad"), 0.2, together=False),
    "jacobian": Option(_derived("jacobian"), 2, together=False),
    "hessian": Option(_derived("hessian"), 0.5, together=False),
    "jvp": Option(_derived("jvp"), 0.3, together=False),
    "vjp": Option(_derived("vjp"), 0.3, together=False),
    "hvp": Option(_derived("hvp"), 0.2, together=False),
    "linearize": Option(_derived("linearize"), 0.2, together=False),
    "grad+pad": Option(grad_pad, 1, together=False),
    "jacobian+pad": Option(jacobian_pad, 0.7, together=False),
    "grad+chunk": Option(grad_chunk, 0.7, together=False),
    "grad+remat": Option(grad_remat, 0.2, together=False),
    "grad+shard": Option(grad_shard, 0.7, together=False),
}
