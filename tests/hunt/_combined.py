"""Several options at once: derivatives of padded, mapped and cut programs, two padded axes, several
arguments and results.

It is apart from `_options.py`, where each option has its own way: here the options are drawn
together, as users write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitney
from jitney import optimize

from ._options import (
    MOST_DIFFERENTIATED,
    NotFloatingError,
    Option,
    Way,
    _chunk,
    _filled,
    _planned,
    plain,
)
from ._program import Program
from ._sizes import pick

Arrays = Mapping[str, Any]
KINDS = (
    "grad",
    "value_and_grad",
    "jacobian",
    "value_and_jacobian",
    "hessian",
    "jvp",
    "vjp",
    "hvp",
    "linearize",
)
NUMBERS = ("grad", "value_and_grad", "hessian", "hvp")  # of one number
HARMLESS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"remat": True},
    {"remat": "dots_saveable"},
    {"runtime_checks": "later"},
    {"roll": "auto"},
    {"compiler": "fast"},
    {"precision": "f32"},
    {"on_trace_error": "eager"},
    {"max_compiles": 1000},
)


def two_axes(program: Program) -> Program:
    """The same, whose axis of three elements has a name too."""
    return replace(
        program, takes=tuple((name, axes.replace("3", "k")) for name, axes in program.takes)
    )


def _buckets(rng: Any, n: int) -> Any:
    return pick(
        rng,
        (
            "pow2",
            "pow2",
            [n + int(rng.integers(0, 5))] if n > 1 else "pow2",
            "aligned" if n < 300 else "pow2",
        ),
    )


def pad_two(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """Two axes of a signature, both padded, or the one that is short."""
    if not any("3" in axes for _, axes in program.takes):
        return None
    named = two_axes(program)
    pad = {"n": _buckets(rng, n), "k": pick(rng, ("pow2", [5], [3, 8]))}
    pad = {"k": pad["k"]} if rng.random() < 0.2 else pad
    made = optimize(pad=pad)(named.compiled())
    return Way(
        lambda arrays: made(**arrays),
        plain(fn),
        f"optimize(pad={pad!r})(f)",
        _filled(made),
        shown=named,
    )


@dataclass(frozen=True)
class _Drawn:
    """What is asked of a derivative."""

    kind: str
    options: Mapping[str, Any]
    keywords: Mapping[str, Any]
    many: bool  # of all arguments that can vary, by name
    start: int
    copies: int  # 0 without `vmap`
    shared: int  # which argument all mapped calls have in common
    two: bool


def _draw(rng: Any, program: Program, n: int) -> _Drawn | None:
    kind = str(pick(rng, KINDS))
    if n > MOST_DIFFERENTIATED.get(kind.removeprefix("value_and_"), 10**9):
        kind = "value_and_grad"
    short = any("3" in axes for _, axes in program.takes)
    two = short and rng.random() < 0.4
    options: dict[str, Any] = dict(pick(rng, HARMLESS))
    copies = int(pick(rng, (1, 2, 3, 5))) if rng.random() < 0.4 else 0
    if copies:
        options["vmap"] = "b"
    if rng.random() < 0.75:
        # of the largest size of a bucket, which is not to be thousands of elements
        long = "jacobian" in kind or kind == "hessian"
        pad: dict[str, Any] = {"n": "pow2" if long else _buckets(rng, n)}
        if two:
            pad["k"] = pick(rng, ("pow2", [5], [3, 8]))
        if copies and rng.random() < 0.5:
            pad["b"] = "pow2"
        options["pad"] = pad
    else:
        options["chunk"] = (
            {"b": int(rng.integers(1, 3))}
            if copies and rng.random() < 0.3
            else {"n": _chunk(rng, n)}
        )
    keywords: dict[str, Any] = {}
    if "jacobian" in kind or kind == "hessian":
        keywords["mode"] = str(pick(rng, ("auto", "forward", "reverse", "coloured", "coloured")))
        if rng.random() < 0.1:
            keywords["sparse"] = True
    return _Drawn(
        kind,
        options,
        keywords,
        bool(rng.random() < 0.5),
        int(rng.integers(8)),
        copies,
        int(rng.integers(8)),
        two,
    )


def derivative(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """A derivative of one or all arguments, of a number, an array or a tree, under several
    options.
    """
    drawn = _draw(rng, program, n)
    form = str(pick(rng, ("bare", "bare", "dict", "none")))
    of = program.number() if drawn.kind in NUMBERS else program.floats(form)
    of = two_axes(of) if drawn.two else of
    body = of.compiled()
    made = jitney.lazy_derivatives(optimize(**drawn.options)(body), **drawn.keywords)
    task = _Task(drawn, of, body)

    def ours(arrays: Arrays) -> Any:
        wrt: Any = task.names(arrays)
        wrt = wrt if drawn.many else wrt[0]
        given = {name: x if drawn.start % 2 else jnp.asarray(x) for name, x in arrays.items()}
        call = getattr(made, drawn.kind)
        if drawn.kind in ("jvp", "hvp"):
            along = task.along(arrays)
            return call(**given, wrt=wrt, tangents=along if drawn.many else along[wrt])
        if drawn.kind == "vjp":
            return call(**given, wrt=wrt, cotangent=task.back(arrays))
        if drawn.kind == "linearize":
            value, linear = call(**given, wrt=wrt)
            along, axes = task.along(arrays), task.axes(arrays)
            if not drawn.copies:
                return value, linear(along if drawn.many else along[wrt])
            # There is a linear function for each copy, which whoever calls it maps.
            towards = {name: axes[name] for name in along}
            mapped = jax.vmap(
                lambda linear, towards: linear(towards if drawn.many else towards[wrt]),
                in_axes=(0, towards),
                axis_size=drawn.copies,
            )
            return value, mapped(linear, along)
        out = call(**given, wrt=wrt)
        return (
            jax.tree.map(lambda x: x.todense(), out, is_leaf=lambda x: hasattr(x, "todense"))
            if "sparse" in drawn.keywords
            else out
        )

    def refusal(arrays: Arrays) -> str | None:
        wrt: Any = task.names(arrays)
        if drawn.kind in ("linearize", "jvp", "hvp", "vjp") or "pad" not in drawn.options:
            return None
        return _filled(getattr(made, drawn.kind).program(wrt=wrt if drawn.many else wrt[0]))(
            {**arrays}
        )

    listed = ", ".join(f"{k}={v!r}" for k, v in drawn.options.items())
    extra = "".join(f", {k}={v!r}" for k, v in drawn.keywords.items())
    how = (
        f"{'all' if drawn.many else 'one'} from {drawn.start}, {drawn.copies} copies, shared"
        f" {drawn.shared}, {form}"
    )
    code = f'("{how}", jitney.lazy_derivatives(optimize({listed})(f){extra}).{drawn.kind})[1]'
    return Way(
        ours,
        task.theirs,
        code,
        refusal,
        "alone",
        "close",
        task.stacked,
        shown=of,
        blurred="jacobian" in drawn.kind or drawn.kind == "hessian",
    )


def _is_single(arrays: Arrays) -> bool:
    """Whether everything is float32 as it is."""
    return all(
        x.dtype == np.float32 for x in arrays.values() if jnp.issubdtype(x.dtype, jnp.inexact)
    )


@dataclass(frozen=True)
class _Task:
    """The plain JAX of what was drawn, and its directions."""

    drawn: _Drawn
    program: Program
    body: Any

    def names(self, arrays: Arrays) -> tuple[str, ...]:
        if "precision" in self.drawn.options and not _is_single(arrays):
            raise NotFloatingError
        floating = [
            name
            for name, _ in self.program.takes
            if jnp.issubdtype(arrays[name].dtype, jnp.floating)
        ]
        if not floating:
            raise NotFloatingError
        return tuple(floating) if self.drawn.many else (floating[self.drawn.start % len(floating)],)

    def _shared(self) -> str | None:
        takes = [name for name, _ in self.program.takes]
        k = self.drawn.shared
        return takes[k % len(takes)] if k < 4 and len(takes) > 1 else None

    def stacked(self, arrays: Arrays) -> Arrays:
        if not self.drawn.copies:
            return dict(arrays)
        return {
            name: (
                x
                if name == self._shared()
                else np.stack([np.roll(x, k) for k in range(self.drawn.copies)])
            )
            for name, x in arrays.items()
        }

    def along(self, arrays: Arrays) -> dict[str, Any]:
        return {
            name: jnp.asarray(
                np.resize(np.arange(1, 6), arrays[name].shape).astype(arrays[name].dtype)
            )
            for name in self.names(arrays)
        }

    def axes(self, arrays: Arrays) -> dict[str, Any]:
        return {
            name: None if name == self._shared() or not self.drawn.copies else 0 for name in arrays
        }

    def back(self, arrays: Arrays) -> Any:
        """Ones and twos, as large as the result."""
        run = (
            (lambda a: jax.vmap(lambda a: self.body(**a), in_axes=(self.axes(arrays),))(a))
            if self.drawn.copies
            else (lambda a: self.body(**a))
        )
        return jax.tree.map(
            lambda out: jnp.asarray(np.resize(np.arange(1, 3), out.shape).astype(out.dtype)),
            jax.eval_shape(run, dict(arrays)),
        )

    def theirs(self, arrays: Arrays) -> Any:
        names, kind = self.names(arrays), self.drawn.kind
        along = self.along(arrays)
        back = self.back(arrays) if kind == "vjp" else None
        axes = self.axes(arrays)

        def one(arrays: Any, along: Any, back: Any) -> Any:
            rest = {name: x for name, x in arrays.items() if name not in names}
            f = lambda at: self.body(**rest, **at)
            at = {name: arrays[name] for name in names}
            return self._one(f, at, along, back, names)

        if self.drawn.copies:
            towards = {name: axes[name] for name in names}
            run = jax.jit(jax.vmap(one, in_axes=(axes, towards, 0 if back is not None else None)))
        else:
            run = jax.jit(one)
        return run({name: jnp.asarray(x) for name, x in arrays.items()}, along, back)

    def _one(self, f: Any, at: Any, along: Any, back: Any, names: tuple[str, ...]) -> Any:
        kind = self.drawn.kind
        single = (lambda d: d) if self.drawn.many else (lambda d: d[names[0]])
        if kind in ("jvp", "linearize"):
            return jax.jvp(f, (at,), (along,))
        if kind == "hvp":
            return single(jax.jvp(jax.grad(f), (at,), (along,))[1])
        if kind == "vjp":
            out, pull = jax.vjp(f, at)
            return out, single(pull(back)[0])
        if kind == "grad":
            return single(jax.grad(f)(at))
        if kind == "value_and_grad":
            value, grad = jax.value_and_grad(f)(at)
            return value, single(grad)
        if kind == "hessian":
            both = jax.hessian(f)(at)
            return both if self.drawn.many else both[names[0]][names[0]]
        jac = jax.jacrev if self.drawn.keywords["mode"] == "reverse" else jax.jacfwd
        # All arguments at once, as ours: a NaN of one times the zero direction of another is a NaN.
        # `jax.jacfwd` takes them so if they are of one dtype.
        if len({x.dtype for x in at.values()}) == 1:
            out = jax.tree.structure(jax.eval_shape(f, at))
            blocks = single(jax.tree.transpose(out, jax.tree.structure(at), jac(f)(at)))
        else:
            blocks = single(
                {name: jac(lambda x, name=name: f({**at, name: x}))(at[name]) for name in names}
            )
        return (f(at), blocks) if kind == "value_and_jacobian" else blocks


def accumulated(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """`accumulate` of a loss with options, of one or all arguments, with something beside the
    number.
    """
    if n == 0:
        return None
    aux = bool(rng.random() < 0.5)
    of = program.number_and_rest() if aux else program.number()
    body = of.compiled()
    options: dict[str, Any] = dict(pick(rng, HARMLESS))
    size, many, start, through = (
        _chunk(rng, n),
        bool(rng.random() < 0.5),
        int(rng.integers(8)),
        bool(rng.random() < 0.3),
    )
    stepped = bool(rng.random() < 0.3)

    def parts(arrays: Arrays) -> Any:
        if "precision" in options and not _is_single(arrays):
            raise NotFloatingError
        floating = tuple(
            name for name, _ in program.takes if jnp.issubdtype(arrays[name].dtype, jnp.floating)
        )
        if not floating:
            raise NotFloatingError
        return floating if many else floating[start % len(floating)]

    def made(arrays: Arrays) -> Any:
        return jitney.accumulate(
            optimize(**options)(body), axis="n", microbatch=size, wrt=parts(arrays), has_aux=aux
        )

    def ours(arrays: Arrays) -> Any:
        run = made(arrays)
        if stepped:
            return optimize(lambda arrays: run(**arrays))(dict(arrays))
        if through:
            call = jitney.lazy_derivatives(
                optimize(**options, chunk={"n": size})(body)
            ).value_and_grad
            return call(**arrays, wrt=parts(arrays), **({"has_aux": True} if aux else {}))
        return run(**arrays)

    def theirs(arrays: Arrays) -> Any:
        names = parts(arrays)
        names = names if many else (names,)
        rest = {name: x for name, x in arrays.items() if name not in names}
        value, grad = jax.jit(jax.value_and_grad(lambda some: body(**rest, **some), has_aux=aux))(
            {name: jnp.asarray(arrays[name]) for name in names}
        )
        return value, grad if many else grad[names[0]]

    def refusal(arrays: Arrays) -> str | None:
        return _planned(made(arrays))(arrays)

    listed = ", ".join(f"{k}={v!r}" for k, v in options.items())
    how = (
        f"{'all' if many else 'one'} from"
        f" {start}{', by chunk' if through else ''}{', in a step' if stepped else ''}"
    )
    code = (
        f'("{how}", jitney.accumulate(optimize({listed})(f), axis="n", microbatch={size},'
        f" has_aux={aux}))[1]"
    )
    return Way(ours, theirs, code, refusal, "alone", "close", shown=of)


OPTIONS: dict[str, Option] = {
    "pad both": Option(pad_two, 2),
    "derivative+pad": Option(derivative, 3, together=False),
    "accumulated": Option(accumulated, 1, together=False),
}
