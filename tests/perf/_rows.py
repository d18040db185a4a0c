"""The rows of `docs/benchmarks.md`: what is measured, by which command, and how two cells are made
of the figures that it records.

A cell is a format string over what the benchmark hands to `examples._figures.record`. Decimals are
those of the table that it prints, so that the numbers of a row are those that are written down on
the page that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the page.

    Args:
        name: What `python -m tests.perf.page` is told.
        page: Where the figure stands first, from the project's root.
        what: What is measured, in words.
        command: As one types it, with the variables of the environment that are its own.
        figure: The first cell, as a format of what the command records.
        beside: The second one, likewise.
        env: Variables of the environment that many share, which the page says once.
        long: Whether it is run only where it is named, or with `--full`.
    """

    name: str
    page: str
    what: str
    command: str
    figure: str
    beside: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    long: bool = False


EQUILIBRIUM = "python -m examples.equilibrium.benchmark"
SURROGATE = "python -m examples.surrogate.benchmark"
ROWS = (
    Row(
        "sizes",
        "docs/axes.md",
        "a thousand sizes",
        "python -m tests.perf.sizes",
        "{pad[first]:.1f} s, {pad[compiles]} programs",
        "{jit[first]:.0f} s, {jit[compiles]} programs of `jax.jit`; {hand[first]:.1f} s of masks by"
        " hand",
    ),
    Row(
        "sizes-warm",
        "docs/axes.md",
        "the same, everything compiled",
        "python -m tests.perf.sizes",
        "{pad[warm]:.0f} us a call",
        "{jit[warm]:.0f} of `jax.jit`, {hand[warm]:.0f} of masks by hand",
    ),
    Row(
        "stream",
        "docs/axes.md",
        "a stream of 100,000,000 rows",
        "python -m tests.perf.stream",
        "{stream[seconds]:.2f} s, {stream[peak]:,.0f} MiB",
        "{mapped[seconds]:.2f} s, {mapped[peak]:,.0f} MiB of a loop by hand over the mapped file,"
        " {memory[seconds]:.2f} s, {memory[peak]:,.0f} MiB in memory",
    ),
    Row(
        "imports",
        "docs/caching.md",
        "first call with `pad`, imports included",
        "python -m tests.perf.imports --rounds 10 --steps plain pad",
        "{pad[jitney]:.0f} ms",
        "{pad[jit]:.0f} of `jax.jit` without imports",
    ),
    Row(
        "kept",
        "docs/caching.md",
        "a new program in a cache of 5000",
        "python -m tests.perf.kept",
        "{full[jitney's limit]:.0f} ms of CPU time",
        "{full[JAX's limit]:.0f} with JAX's own limit, {empty[jitney's limit]:.0f} in an empty"
        " folder",
    ),
    Row(
        "starts",
        "docs/caching.md",
        'the first call of a neural ODE with `cache="program"`',
        "python -m tests.perf.starts ode",
        "{cpu[ode][program]:.3f} s of CPU",
        "{cpu[ode][cold]:.2f} without a cache, {cpu[ode][compiled]:.2f} with compiled programs"
        " kept, {cpu[ode][by hand]:.3f} of a program of `jax.export` by hand",
    ),
    Row(
        "looks",
        "docs/axes.md",
        "a first padded call whose Python looks at sizes, and one at a new size",
        "python -m tests.perf.looks",
        "{ms[from examples][first]:.0f} and {ms[from examples][new]:.1f} ms of CPU",
        "{ms[symbolic][first]:.0f} and {ms[symbolic][new]:.1f} with a symbolic trace,"
        " {ms[exact][first]:.0f} and {ms[exact][new]:.0f} at exact size, {ms[by hand][first]:.0f} and"
        " {ms[by hand][new]:.1f} of a mask by hand",
    ),
    Row(
        "stream-speed",
        "docs/axes.md",
        "a stream that sums a file of 160 MiB in the system's cache",
        "python -m tests.perf.stream_speed",
        "{ms[sum, .npy][stream]:.1f} ms, {ms[sum, .npy][kept]:.1f} with `checkpoint=`",
        "{ms[sum, .npy][floor]:.1f} of `numpy.memmap(...).sum()`, {ms[sum, .npy][hand]:.1f} of the"
        " loop by hand",
    ),
    Row(
        "captured",
        "docs/caching.md",
        "the first call of a function that closes over 36 MB",
        "python -m tests.perf.captured product",
        "{seconds[product][on]:.2f} s",
        "{seconds[product][jax]:.2f} of `jax.jit`, {seconds[product][jax cached]:.2f} with its own"
        " cache, {seconds[product][argument]:.2f} with the array as an argument",
    ),
    Row(
        "exported",
        "docs/exporting.md",
        "the first call of a neural ODE from a file, its code kept",
        "python -m tests.perf.exported",
        "{cpu[file, compiled code kept]:.1f} s of CPU",
        "{cpu[source, compiled code kept]:.1f} from the source; {cpu[file]:.1f} and"
        " {cpu[source]:.1f} with nothing kept",
    ),
    Row(
        "shard",
        "docs/devices.md",
        "a warm call over eight devices",
        "python -m tests.perf.shard",
        "{least:.2f} to {most:.2f} of by hand",
        "`jax.jit` with shardings by hand",
        EIGHT,
    ),
    Row(
        "spread",
        "docs/devices.md",
        "chunks on each device",
        "python -m tests.perf.spread",
        "{chunked:.2f} MiB of temporaries",
        "{scan:.1f} and {map:.1f} with `lax.scan` and `lax.map`, {whole:.0f} without chunks",
        EIGHT,
    ),
    Row(
        "scaling",
        "docs/devices.md",
        "a step with Adam, eight devices, batch 2,048",
        "python -m tests.perf.scaling",
        "{ms[data, strong, 8][jitney]:.1f} ms",
        "{ms[data, strong, 8][hand]:.1f} with shardings by hand",
        EIGHT,
    ),
    Row(
        "remat",
        "docs/memory.md",
        '`remat="auto"`, operations recomputed',
        "python -m tests.perf.remat",
        "{least:.2f} to {most:.2f} of the best",
        "an exhaustive search",
    ),
    Row(
        "rolled",
        "docs/depth.md",
        "24 stacked blocks of a transformer as a loop, to compile their value",
        "JITNEY_BENCH_MODELS=transformer JITNEY_BENCH_KINDS=value python -m tests.perf.rolled 24",
        "{compile[transformer, 24, value][stacked, rolled]:.3f} s of CPU",
        "{compile[transformer, 24, value][stacked]:.3f} not rolled, {compile[transformer, 24,"
        " value][list]:.3f} as a list",
    ),
    Row(
        "microbatches",
        "docs/models.md",
        "microbatches",
        "python -m tests.perf.microbatches",
        "{least:.2f} to {most:.2f} of the time",
        "the `lax.scan` by hand",
    ),
    Row(
        "coverage",
        "docs/models.md",
        "models along their axes",
        "python -m tests.perf.coverage",
        "{models[exact]} of {models[all]} exact, {models[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "coverage-scripts",
        "docs/models.md",
        "scripts of public documentation along theirs",
        "python -m tests.perf.coverage",
        "{scripts[exact]} of {scripts[all]} exact, {scripts[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "coverage-wide",
        "docs/models.md",
        "models along their axes, in float64",
        "python -m tests.perf.coverage --x64 --group models",
        "{models[exact]} of {models[all]} exact, {models[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "coverage-scripts-wide",
        "docs/models.md",
        "scripts of public documentation along theirs, in float64",
        "python -m tests.perf.coverage --x64 --group scripts",
        "{scripts[exact]} of {scripts[all]} exact, {scripts[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "coverage-libraries",
        "docs/models.md",
        "calls of libraries along the data",
        "python -m tests.perf.coverage --group libraries",
        "{libraries[exact]} of {libraries[all]} exact, {libraries[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "coverage-libraries-wide",
        "docs/models.md",
        "calls of libraries along the data, in float64",
        "python -m tests.perf.coverage --x64 --group libraries",
        "{libraries[exact]} of {libraries[all]} exact, {libraries[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "fields",
        "docs/models.md",
        "52 bodies with data in classes, in float32 and float64",
        "python -m tests.perf.fields",
        "{float32[exact]} and {float64[exact]} exact, {float32[wrong]} and {float64[wrong]} wrong",
        "plain JAX at exact size",
    ),
    Row(
        "state",
        "docs/states.md",
        "a state of 250 numbers",
        "python -m tests.perf.state",
        "{split[operations]} operations",
        "{slices[operations]} one by one",
    ),
    Row(
        "state-time",
        "docs/states.md",
        "the same, to trace and lower",
        "python -m tests.perf.state",
        "{split[ms]:.0f} ms",
        "{slices[ms]:.0f} one by one",
    ),
    Row(
        "simulate",
        "docs/simulate.md",
        "2,048 devices on paper",
        "python -m tests.perf.simulate",
        "{seconds:.0f} s",
        "nothing: no machine was there",
    ),
    Row(
        "gradient",
        "docs/derivatives.md",
        "a warm call of `f.grad`",
        "python -m tests.perf.warm_call",
        "{us[a gradient][jitney]:.1f} us",
        "{us[a gradient][jit]:.1f} of `jax.jit(jax.grad(f))`",
    ),
    Row(
        "contracts",
        "docs/measuring.md",
        "a call with contracts",
        "python -m tests.perf.warm_call",
        "{features[contracts][jitney]:.1f} us",
        "{features[contracts][jit]:.1f} of `jax.jit`",
    ),
    Row(
        "jacobians",
        "docs/derivatives.md",
        "Jacobians",
        "python -m tests.perf.jacobians",
        "{slow} of {problems} problems take more than 1.1 times the best",
        "forward, reverse, coloured and chunked passes",
    ),
    Row(
        "harm",
        "docs/measuring.md",
        "50 functions as public documentation has them",
        "JITNEY_BENCH_SECONDS=0.5 python -m tests.perf.harm",
        "above 50 us {met} within 2%, {slower} slower, {unknown} unknown",
        "`jax.jit` of flat arrays",
    ),
    Row(
        "first-call",
        "docs/measuring.md",
        "the first call of a TRF fit",
        "JITNEY_BENCH_ROUNDS=3 python -m tests.perf.first_call",
        "{cpu[trf, `curve_fit`][jitney]:.3f} s of CPU",
        "{cpu[trf, `curve_fit`][peer]:.3f} of optimistix",
    ),
    Row(
        "later",
        "docs/errors.md",
        '`runtime_checks="later"`, with work of the host',
        "python -m tests.perf.later",
        "{least:.2f} to {most:.2f} of the time",
        "calls that wait for their checks",
    ),
    Row(
        "compiler",
        "docs/options/compiler.md",
        '`compiler="fast"`',
        "python -m examples.trf.options",
        '{fit[@optimize(compiler="fast")][first]:.2f} s of CPU the first call,'
        ' {fit[@optimize(compiler="fast")][ms]:.3f} ms a warm one',
        "{fit[@optimize][first]:.2f} s and {fit[@optimize][ms]:.3f} ms without",
    ),
    Row(
        "debug-nans",
        "docs/options/debug_nans.md",
        "a call whose result `debug_nans` looks at",
        "python -m tests.perf.options",
        "{warm[debug_nans=True]:.0f} us",
        "{warm[none]:.0f} without, both waited for",
    ),
    Row(
        "assert-faster",
        "docs/measuring.md",
        "`assert_faster`, verdicts that were wrong",
        "python -m tests.perf.assert_faster",
        "{wrong} of {runs:,}",
        "{hand}, case by case, measured by hand",
        long=True,
    ),
    Row(
        "auto",
        "docs/options/auto.md",
        "`auto=True`, batches of 24 programs",
        "python -m tests.perf.auto",
        "{gain[auto][all]:.2f} times as fast in the geometric mean, the least"
        " {gain[auto][least]:.2f}; {gain[auto][near]} of {gain[auto][count]} within 1.1 of by hand",
        "`jax.jit(jax.vmap(...))`; {gain[by hand][all]:.2f} by hand",
        long=True,
    ),
    Row(
        "automation",
        "docs/automation.md",
        "lines of plumbing of the four ports",
        "python -m tests.perf.automation",
        "{after}",
        "{hand} by hand",
    ),
    Row(
        "trf",
        "examples/trf/README.md",
        "a fit of 1,000,000 points, `decay`",
        "python -m examples.trf.benchmark",
        "{free[decay 1,000,000][trf]:.3g} ms",
        "{free[decay 1,000,000][by hand]:.3g} by hand, {free[decay 1,000,000][optx]:.3g} of"
        " optimistix, {free[decay 1,000,000][scipy]:.3g} of SciPy",
    ),
    Row(
        "trf-small",
        "examples/trf/README.md",
        "a fit of 100 points, `decay`",
        "python -m examples.trf.benchmark",
        "{free[decay 100][trf]:.3g} ms",
        "{free[decay 100][by hand]:.3g} by hand, {free[decay 100][optx]:.3g} of optimistix,"
        " {free[decay 100][scipy]:.3g} of SciPy",
    ),
    Row(
        "trf-batch",
        "examples/trf/README.md",
        "a thousand fits at once, `decay`",
        "python -m examples.trf.benchmark",
        "{batch[decay, 1000 x 100][trf]:.3g} us a fit",
        "{batch[decay, 1000 x 100][by hand]:.3g} by hand, {batch[decay, 1000 x 100][optx]:.3g} of"
        " optimistix",
    ),
    Row(
        "homodyne",
        "examples/homodyne/README.md",
        "99,980,000 points",
        'python -m examples.homodyne.benchmark --sizes 1e8 --ways "in memory" chunked streamed',
        "{points[99,980,000][chunked][peak]:.2f} GiB, {points[99,980,000][chunked][seconds]:.2f} s"
        " chunked; {points[99,980,000][streamed][peak]:.2f} GiB,"
        " {points[99,980,000][streamed][seconds]:.2f} s from disk",
        "{points[99,980,000][in memory][peak]:.2f} GiB, {points[99,980,000][in"
        " memory][seconds]:.2f} s in memory",
        long=True,
    ),
    Row(
        "equilibrium-scalar",
        "examples/equilibrium/README.md",
        "a scalar model, cold",
        f"{EQUILIBRIUM} --rounds 3",
        "{ways[scalar, jitney][cold]:.2f} s, {ways[scalar, jitney][programs]} programs",
        "{ways[scalar, dense][cold]:.2f} s with dense derivatives, {ways[scalar, before][programs]}"
        " programs before",
    ),
    Row(
        "equilibrium-vector",
        "examples/equilibrium/README.md",
        "a vector model, cold",
        f"{EQUILIBRIUM} --rounds 3",
        "{ways[vector, jitney][cold]:.2f} s",
        "{ways[vector, before][cold]:.2f} s before, which imports less",
    ),
    Row(
        "equilibrium-likelihood",
        "examples/equilibrium/README.md",
        "a Kalman filter, and its gradient",
        f"{EQUILIBRIUM} --calls",
        "{calls[Kalman filter][jitney]:.3g} ms, {calls[Kalman filter and gradient][jitney]:.3g} ms",
        "{calls[Kalman filter][by hand]:.3g} and {calls[Kalman filter and gradient][by hand]:.3g}"
        " ms of a filter and its adjoint by hand",
    ),
    Row(
        "surrogate",
        "examples/surrogate/STEP.md",
        "a training step (16, 8, 5)",
        f'{SURROGATE} --cells 16,8,5 --rounds 15 --no-mixed --no-fresh --ways "jit vmap" "masks by'
        ' hand" jitney "jitney padded"',
        "{cpu[16,8,5][jitney]:.1f} ms of CPU; {cpu[16,8,5][jitney padded]:.1f} padded",
        "{cpu[16,8,5][jit vmap]:.1f} of `jax.jit` with `vmap` by hand, {cpu[16,8,5][masks by"
        " hand]:.1f} with masks by hand",
    ),
    Row(
        "surrogate-compiles",
        "examples/surrogate/STEP.md",
        "one step each of 3 to 20 variables",
        f'{SURROGATE} --full --cells 16,8,5 --rounds 1 --ways jitney "jitney padded"',
        "{compiles[padded]} compiles with `pad`",
        "{compiles[exact]} compiles without",
    ),
)
