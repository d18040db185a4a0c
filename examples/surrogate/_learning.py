"""Training on campaigns that are drawn on the device: many steps are one dispatch.

A program is a `scan` over steps. Each step draws models and samples from a key, takes the gradient
of the mean loss, and updates weights and moments, which are donated. Between dispatches the host
chooses what comes next (`_stages`), reads losses that are done, and keeps a checkpoint.
"""

import dataclasses
import functools
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import jitney

from . import _checkpoint
from ._data import tables
from ._stages import Look, Mixture, Schedule, Stage
from ._stream import Difficulty, Seen, campaigns, members, truth
from ._trained import load
from .reader import Reader

JUDGED = 16  # answers in held-out campaigns


@dataclass(frozen=True)
class Session:
    """What a training session is made of.

    Args:
        hidden: Width of the network.
        depth: How many blocks read the samples.
        after: How many layers of attention come after.
        rows: Variables of all models of a step together, so that each step costs about the same.
        steps: In a dispatch.
        rate: The largest learning rate.
        dispatches: At most; None for no limit.
        seconds: At most, first compiles included; None for no limit.
        looks: How often held-out quality is taken.
        held_out: Models in it, of each number of variables.
        schedule: What to train on.
        seed: Of weights and data.
        begin: A file of weights to begin with, of a network of the same sizes; None for new ones.
    """

    hidden: int = 80
    depth: int = 4
    after: int = 2
    rows: int = 1536
    steps: int = 50
    rate: float = 1e-3
    dispatches: int | None = None
    seconds: float | None = 240.0
    looks: int = 16
    held_out: int = 512
    schedule: Schedule = field(default_factory=Mixture)
    seed: int = 0
    begin: Path | None = None

    def model(self) -> Reader:
        """The network before training.

        Raises:
            ValueError: The weights to begin with are of a network of other sizes.
        """
        model = Reader(self.hidden, self.depth, self.after, key=jax.random.key(self.seed))
        if self.begin is None:
            return model
        found = load(self.begin)
        shapes = [[leaf.shape for leaf in jax.tree.leaves(each)] for each in (model, found)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{self.begin} has the weights of another network than one of width {self.hidden},"
                f" with {self.depth} blocks and {self.after} layers after: give the sizes it has."
            )
        return found

    def made_of(self) -> dict[str, object]:
        """What has to be the same where a session goes on, as JSON."""
        begin = hashlib.sha256(self.begin.read_bytes()).hexdigest() if self.begin else None
        return {**dataclasses.asdict(self), "schedule": repr(self.schedule), "begin": begin}

    def examples(self, variables: int) -> int:
        """Models in a step."""
        return max(self.rows // variables, 1)

    def part(self, dispatches: int, seconds: float, limit: float | None) -> float:
        """How much of the session is over, of `limit` seconds."""
        parts = [
            dispatches / self.dispatches if self.dispatches is not None else 0.0,
            seconds / limit if limit is not None else 0.0,
        ]
        return max(parts)

    def steps_of(self, variables: int) -> Any:
        """The program of a dispatch."""
        return steps_of(variables, self.examples(variables), self.steps)

    def rate_at(self, part: float) -> float:
        """A warm-up, then a cosine to a hundredth."""
        least = self.rate / 100
        if part < 0.03:
            return least + (self.rate - least) * part / 0.03
        cosine = (1 + math.cos(math.pi * min((part - 0.03) / 0.97, 1.0))) / 2
        return least + (self.rate - least) * cosine


def surprise(model: Reader, seen: Seen) -> tuple[Float[Array, ""], Float[Array, "vars sets"]]:
    """Minus the log probability of the true parent sets of one model, and the belief."""
    index, mask = map(jnp.asarray, tables(seen.parents.shape[0]))
    log_q = model.beliefs(seen.values, seen.intervened, index, mask, seen.there)
    found = jnp.sum(jnp.where(truth(seen.parents), log_q, 0.0), axis=1)
    return -jnp.mean(found), log_q


# all but the learning rate, which is an argument of the program
OPTIMISER = optax.chain(
    optax.clip_by_global_norm(1.0), optax.scale_by_adam(b2=0.99), optax.add_decayed_weights(1e-4)
)


@functools.cache
def steps_of(variables: int, examples: int, count: int) -> Any:
    """So many steps as one program.

    Args:
        variables: Of each model.
        examples: Models in a step.
        count: Steps.
    """

    @jitney.optimize(donate=("model", "opt"))
    def steps(
        model: Reader,
        opt: PyTree,
        key: PRNGKeyArray,
        rate: Float[Array, ""],
        difficulty: Difficulty,
    ) -> tuple[Reader, PyTree, Float[Array, "step"]]:
        def step(state: tuple[Reader, Any], key: Array) -> tuple[tuple[Reader, Any], Array]:
            model, opt = state
            seen = campaigns(key, examples, variables, difficulty)

            def mean(model: Reader) -> Array:
                return jnp.mean(jax.vmap(lambda each: surprise(model, each)[0])(seen))

            value, slope = eqx.filter_value_and_grad(mean)(model)
            change, opt = OPTIMISER.update(slope, opt, model)
            change = jax.tree.map(lambda each: -rate * each, change)
            return (eqx.apply_updates(model, change), opt), value

        (model, opt), losses = jax.lax.scan(step, (model, opt), jax.random.split(key, count))
        return model, opt, losses

    return steps


@functools.cache
def judge_of(variables: int, models: int) -> Any:
    """Held-out quality as a program: the surprise of each model, and how many edges of all models
    were said and are true, were said, and are true.
    """

    @jitney.optimize
    def judge(
        model: Reader, key: PRNGKeyArray, difficulty: Difficulty
    ) -> tuple[Float[Array, "model"], Float[Array, "3"]]:
        seen = campaigns(key, models, variables, difficulty, JUDGED)

        def one(each: Seen) -> tuple[Array, Array]:
            value, log_q = surprise(model, each)
            said = jnp.einsum("ts,tsv->tv", jnp.exp(log_q), members(variables)) > 0.5
            true = each.parents
            return value, jnp.stack([jnp.sum(x) for x in (said & true, said, true)])

        value, counts = jax.vmap(one)(seen)
        return value, jnp.sum(counts, axis=0).astype(jnp.float32)

    return judge


def surprises(
    session: Session, model: Reader, stage: Stage
) -> tuple[Float[np.ndarray, "model"], float]:
    """The surprise of each held-out model of a stage, and the F1 of all edges together. They are
    always the same models, which no training has.
    """
    key = jax.random.fold_in(jax.random.key(2**31 - 1), stage.variables)
    fixed = dataclasses.replace(stage, least=JUDGED).difficulty
    values, counts = judge_of(stage.variables, session.held_out)(model, key, fixed)
    hits, said, true = np.asarray(counts).tolist()
    return np.asarray(values), 2 * hits / max(said + true, 1.0)


def look_at(session: Session, model: Reader, stage: Stage) -> Look:
    """Held-out quality on models of a stage."""
    values, f1 = surprises(session, model, stage)
    return Look(stage, float(values.mean()), f1)


@dataclass(frozen=True)
class Note:
    """A line of the log."""

    dispatches: int
    examples: int
    seconds: float  # without compiles
    part: float  # of the session
    rate: float
    loss: float
    looks: tuple[Look, ...]

    def as_json(self) -> dict[str, Any]:
        """For a log of JSON lines."""
        return dataclasses.asdict(self)

    @classmethod
    def first(cls) -> "Note":
        """Before all training."""
        return cls(0, 0, 0.0, 0.0, 0.0, 0.0, ())

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Note":
        """From such a line."""
        looks = [
            Look(Stage(**each["stage"]), each["surprise"], each["f1"]) for each in line["looks"]
        ]
        return cls(**{**line, "looks": tuple(looks)})


@dataclass(frozen=True)
class Learned:
    """The network, and the log."""

    model: Reader
    notes: list[Note]


def compile_all(session: Session, state: tuple[Reader, Any]) -> None:
    """All programs, side by side: XLA compiles in threads. Results are thrown away."""
    key = jax.random.key(0)

    def first(variables: int) -> None:
        own = jax.tree.map(jnp.copy, state)
        rest = key, jnp.float32(0.0), Stage(variables).difficulty
        jax.block_until_ready(session.steps_of(variables)(*own, *rest))
        look_at(session, state[0], Stage(variables))

    with ThreadPoolExecutor(len(session.schedule.sizes)) as threads:
        list(threads.map(first, session.schedule.sizes))


def learn(
    session: Session,
    path: Path | None = None,
    after: Callable[[Reader, list[Note]], None] = lambda model, notes: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Learned:
    """Train until the limit, or go on with the session whose checkpoint is there.

    Args:
        session: What.
        path: Of the checkpoint, which is kept at each look; None for none.
        after: Is called at each look, with all lines of the log.
        clock: Seconds.

    Raises:
        ValueError: The checkpoint is damaged or of another session.
    """
    began, model = clock(), session.model()
    state = model, OPTIMISER.init(model)
    made_of = session.made_of()
    notes, found = list[Note](), _checkpoint.load(path, made_of, state) if path else None
    if found:
        notes, state = [Note.of(each) for each in found[1]], found[2]
    compile_all(session, state)
    limit = None if session.seconds is None else max(session.seconds - clock() + began, 1.0)
    last = notes[-1] if notes else Note.first()
    done, examples, part = last.dispatches, last.examples, last.part
    began = clock() - (part * limit if limit else last.seconds)
    looks = [look for note in notes for look in note.looks]
    waiting, losses, seen = list[Array](), list[float](), part
    while part < 1:
        stage = session.schedule.choose(np.random.default_rng([session.seed, done]), looks)
        key = jax.random.fold_in(jax.random.key(session.seed), done)
        rate = session.rate_at(part)
        given = key, jnp.float32(rate), stage.difficulty
        *state, loss = session.steps_of(stage.variables)(*state, *given)
        done, examples = done + 1, examples + session.examples(stage.variables) * session.steps
        waiting.append(loss)
        if len(waiting) > 1:
            # the device is at work on the next dispatch meanwhile
            losses.append(float(np.mean(waiting.pop(0))))
        part = session.part(done, clock() - began, limit)
        if int(part * session.looks) == int(seen * session.looks) and part < 1:
            continue
        losses += [float(np.mean(each)) for each in waiting]
        here = looked(session, state[0], looks)
        looks += here
        seconds, mean = clock() - began, float(np.mean(losses))
        notes.append(Note(done, examples, seconds, part, rate, mean, here))
        seen, waiting, losses = part, [], []
        if path:
            kept = [each.as_json() for each in notes]
            _checkpoint.save(path, made_of, done, kept, tuple(state))
        after(state[0], notes)
    return Learned(state[0], notes)


def looked(session: Session, model: Reader, looks: Sequence[Look]) -> tuple[Look, ...]:
    """Held-out quality of all sizes at full difficulty, and where the schedule decides by it."""
    watched = session.schedule.watched(looks)
    stages = [Stage(each) for each in session.schedule.sizes] + ([watched] if watched else [])
    return tuple(look_at(session, model, stage) for stage in dict.fromkeys(stages))
