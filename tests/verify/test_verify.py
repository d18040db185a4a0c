import re
import subprocess
import sys
import threading
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jitney
from jitney import _axes, optimize
from jitney._axes.rule import POINTWISE, Rule
from jitney._axes.rules import RULES
from jitney._body.plain import ProgramChange
from jitney._host.switches import SETTINGS
from jitney._precision import low_products as _autocast
from jitney._sparsity.directions import Linearized
from jitney._stages.remat import Remat
from jitney._stream import verify as _verify_stream
from jitney._stream.steps import CompiledSteps
from jitney._verify.difference import Allowed, compare_results
from jitney._verify.rounding import elementwise
from jitney.errors import VerificationError
from tests._arrays import array
from tests._monitor import listening
from tests._switched import configured, environment

X = array(np.arange(1.0, 8.0))
M = array(np.random.default_rng(0).normal(size=(7, 7)))
Vector = Float[Array, "n"]


@pytest.fixture
def unmasked(monkeypatch):
    """A rule that forgets what stands behind the true size, as a wrong one would."""

    def forget(name):
        monkeypatch.setitem(RULES, name, Rule(RULES[name].uses, POINTWISE.pad))

    return forget


def fresh():
    """A function whose programs no other test has."""

    def centred(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x - jnp.sum(x) / 100

    return centred


def test_a_wrong_rule_of_padding_is_caught(unmasked):
    """The message says function, axis, operation and both values, for a smaller call."""
    unmasked("reduce_sum")
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    with pytest.raises(
        VerificationError, match=r"^centred\(\) at test_verify.py:\d+: result\["
    ) as error:
        f(jnp.arange(1.0, 41.0))
    said = str(error.value)
    assert "`reduce_sum` at test_verify.py" in said
    assert "pad over 'n'" in said
    assert "cut to n=3" in said
    wrong, right = (
        float(part.split()[0].rstrip(","))
        for part in (said.split(" is ")[1], said.split(", and ")[1])
    )
    assert right == pytest.approx(jnp.arange(1.0, 4.0)[int(said[said.index("[") + 1])] - 0.06)
    assert wrong == pytest.approx(right - 0.03)


def test_each_size_of_a_bucket_is_compared(unmasked):
    """A fault that shows at some sizes only: at the bucket's own size nothing is padded."""
    unmasked("reduce_sum")
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    f(jnp.ones(8))
    with pytest.raises(VerificationError):
        f(jnp.ones(7))


@pytest.mark.rest
def test_a_call_that_differs_is_an_error_every_time(unmasked):
    """It is not remembered as verified."""
    unmasked("reduce_sum")
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    for _ in range(2):
        with pytest.raises(VerificationError):
            f(jnp.ones(3))


def test_a_program_that_is_right_is_compared_once():
    """The calls after it run as they do without `verify`."""
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    f(jnp.ones(5))
    with listening() as events:
        f(jnp.ones(5))
    assert (events.count("trace"), events.count("compile")) == (0, 0)
    assert f.stats.verified == 1


def test_what_is_compared_with_is_not_counted_as_the_programs():
    """Two sizes, one program, as without `verify`."""
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    f(jnp.ones(5))
    f(jnp.ones(6))
    stats = f.stats
    assert (stats.traces, stats.compiles + stats.persistent_hits, stats.verified) == (1, 1, 2)
    assert "verified  2" in str(stats)


@pytest.fixture
def forgets_the_end(monkeypatch):
    """The last element of everything that is cut into chunks counts as zero."""
    found = _axes.run_chunked

    def run(passes, arrays, *rest):
        return found(passes, [x.at[-1].set(0) if x.ndim else x for x in arrays], *rest)

    monkeypatch.setattr(_axes, "run_chunked", run)


@pytest.mark.rest
@pytest.mark.usefixtures("forgets_the_end")
def test_an_element_that_is_missing_in_chunks_is_caught():
    """The last of seven."""
    with pytest.raises(VerificationError, match="Under chunk over 'n'"):
        optimize(chunk={"n": 2}, verify=True)(fresh())(X)


@pytest.mark.rest
@pytest.mark.usefixtures("forgets_the_end")
def test_an_example_that_is_missing_in_microbatches_is_caught():
    """Against the gradient of the whole batch."""

    @optimize(verify=True)
    def loss(w: Float[Array, ""], x: Float[Array, "batch"]) -> Float[Array, ""]:
        return jnp.mean((w * x) ** 2)

    with pytest.raises(VerificationError, match="Under accumulate over 'batch'"):
        jitney.accumulate(loss, axis="batch", microbatch=2, wrt="w")(jnp.float32(2), X)


@pytest.mark.rest
@pytest.mark.usefixtures("forgets_the_end")
def test_a_wrong_program_inside_a_step_is_caught():
    """The step itself is plain `jax.jit`; what it calls is not."""

    @optimize
    def loss(w: Float[Array, ""], x: Float[Array, "batch"]) -> Float[Array, ""]:
        return jnp.mean((w * x) ** 2)

    gradient = jitney.accumulate(loss, axis="batch", microbatch=2, wrt="w")
    step = optimize(verify=True, donate="w")(lambda w, x: w - 0.1 * gradient(w, x)[1])
    with pytest.raises(VerificationError, match="accumulate over 'batch'"):
        step(jnp.float32(2), X)


@optimize(verify=True)
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


class Rows:
    """Data that are read piece by piece."""

    shape, dtype = (40,), np.dtype(np.float32)

    def __getitem__(self, rows):
        return np.arange(40, dtype=np.float32)[rows]


@pytest.mark.rest
def test_a_piece_that_is_missing_in_a_stream_is_caught(monkeypatch):
    """Against one plain call on all of the data."""
    found = CompiledSteps.pieces.func
    monkeypatch.setattr(CompiledSteps, "pieces", property(lambda steps: found(steps)[:-1]))
    with pytest.raises(VerificationError, match="Under stream over 'n'"):
        jitney.stream(total, Rows(), chunk={"n": 7}, progress=False)


def test_a_stream_that_is_right_is_verified():
    """Its data are read once more, as a whole."""
    before = total.stats.verified
    assert jitney.stream(total, Rows(), chunk={"n": 8}, progress=False).result == 780
    assert total.stats.verified == before + 1


def test_data_that_are_too_large_to_be_read_as_a_whole_are_left_out_with_a_warning(monkeypatch):
    """Never in silence."""
    monkeypatch.setattr(_verify_stream, "LIMIT", 100)
    with pytest.warns(jitney.JitneyWarning, match="a stream of 160 B is not verified"):
        jitney.stream(total, Rows(), chunk={"n": 9}, progress=False)


@pytest.mark.rest
def test_an_element_that_is_missing_in_a_pattern_is_caught(monkeypatch):
    """The coloured Jacobian against that of `jax.jacfwd`."""
    found = Linearized.pattern

    def diagonal(linearized, *args):
        pattern = found(linearized, *args)
        own = pattern.rows == pattern.indices
        return type(pattern).of_pairs(
            pattern.rows[own], pattern.indices[own], pattern.size, pattern.columns
        )

    monkeypatch.setattr(Linearized, "pattern", diagonal)
    neighbours = optimize(verify=True)(lambda x: x**2 + jnp.roll(x, 1))
    with pytest.raises(VerificationError, match="Under jacobian"):
        jitney.lazy_derivatives(mode="coloured")(neighbours).jacobian(jnp.arange(1.0, 30.0))


def test_a_wrong_product_in_a_low_type_is_caught(monkeypatch):
    """By more than a low type rounds."""
    found = _autocast.low_product
    monkeypatch.setattr(_autocast, "low_product", lambda *args: 1.2 * found(*args))
    with pytest.raises(VerificationError, match=r"`dot_general` at test_verify.py"):
        optimize(precision="bf16", verify=True)(lambda x: x @ x)(M)


@pytest.mark.rest
def test_a_wrong_recomputation_is_caught(monkeypatch):
    """Of the gradient."""
    monkeypatch.setattr(
        Remat, "wrap", lambda self, fn, outcome: lambda *arrays: [2 * x for x in fn(*arrays)]
    )
    with pytest.raises(VerificationError, match="Under remat"):
        optimize(remat=True, verify=True)(jnp.sin)(X)


# What is honest passes.


@pytest.mark.core("bf16")
@pytest.mark.parametrize(
    "precision", ["bf16", "fp16", "bf16-all", "tf32", "f64", {"default": "bf16"}, "auto:1e-1"]
)
def test_what_a_low_type_rounds_is_no_difference(precision):
    """Sums of 500 products, and the differences of nearly equal ones."""
    rng = np.random.default_rng(1)
    a, b = (jnp.asarray(rng.normal(size=(500, 500)) / 20, jnp.float32) for _ in range(2))
    f = optimize(precision=precision, verify=True)(
        lambda a, b: (a @ b - jnp.mean(a @ b)) / jnp.std(a @ b)
    )
    f(a, b)


def test_a_cancelling_sum_is_no_difference():
    """Its relative error is large in every order of adding up: rounding of the arguments explains
    it.
    """
    x = np.random.default_rng(2).normal(size=1000).astype(np.float32) * 1e4
    x -= x.mean()
    f = optimize(chunk={"n": 7}, verify=True)(lambda_sum)
    f(jnp.asarray(x))
    assert f.stats.verified == 1


def lambda_sum(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


@pytest.mark.rest
@pytest.mark.parametrize("options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 7}}])
def test_a_softmax_that_is_nearly_one_hot_is_no_difference(options):
    """Its gradient is what is left of ones that cancel: no change of the arguments shows that, a
    last bit inside does.
    """

    @optimize(verify=True, **options)
    def gradient(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jax.grad(lambda x: -jnp.sum(jnp.where(x > -1, jax.nn.log_softmax(x), 0)))(x)

    x = np.random.default_rng(3).normal(size=33).astype(np.float32) - 15
    x[0] = 0
    gradient(x)
    assert gradient.stats.verified == 1


def test_a_tie_that_rounding_decides_is_no_difference():
    """The larger of two sums that differ by rounding alone."""

    @optimize(chunk={"n": 2}, verify=True)
    def larger(x: Float[Array, "n"]) -> Int[Array, ""]:
        return jnp.argmax(jnp.stack([jnp.sum(x), jnp.sum(x * 3) / 3]))

    for seed in range(8):
        larger(jnp.asarray(np.random.default_rng(seed).normal(size=33), jnp.float32))


def test_elementwise_results_of_padding_are_equal_to_the_bit():
    """The last bit of one element is a difference there, and none in a sum."""
    allowed = Allowed((ProgramChange("pad", ("n",)),), 7, (True, False))
    near = np.nextafter(np.asarray(X), np.float32(0))
    assert compare_results([near, X], [X, X], allowed).path == "[0]"
    assert compare_results([X, near], [X, X], allowed) is None


def test_positions_that_scale_elements_are_elementwise():
    """No number on the way is rounded before it meets an element; a ramp's are."""

    def scaled(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * jnp.arange(x.shape[0], dtype=x.dtype) + x / x.shape[0]

    def faded(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x + jnp.arange(x.shape[0], dtype=x.dtype) * 0.1

    assert elementwise(jax.make_jaxpr(scaled)(X)) == [True]
    assert elementwise(jax.make_jaxpr(faded)(X)) == [False]


def test_a_ramp_of_the_size_may_be_rounded_otherwise():
    """XLA folds it where the size is known; its products and sums are fused where it is not."""

    @optimize(pad={"n": [40]}, verify=True)
    def faded(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * jnp.linspace(0.3, 1.7, x.shape[0])

    for n in (3, 21, 33, 39):
        faded(jnp.asarray(np.random.default_rng(n).normal(size=n), jnp.float32))
    assert faded.stats.verified == 4


@pytest.mark.parametrize("other", [jnp.nan, jnp.inf, -jnp.inf])
def test_nan_and_infinities_are_equal_or_a_difference(other):
    """On either side."""
    allowed = Allowed((ProgramChange("chunk", ("n",)),), 7)
    assert compare_results(X.at[2].set(other), X, allowed).at == (2,)
    assert compare_results(X, X.at[2].set(other), allowed).at == (2,)
    assert compare_results(X.at[2].set(other), X.at[2].set(other), allowed) is None


def test_another_dtype_or_shape_is_a_difference():
    """Whatever the numbers."""
    allowed = Allowed((ProgramChange("pad", ("n",)),), 7)
    assert "float16[7]" in compare_results(X.astype(jnp.float16), X, allowed).text
    assert "float32[6]" in compare_results(X[:6], X, allowed).text


def test_donated_buffers_are_copied():
    """The call gives its own up, and the plain one gets another."""
    f = optimize(pad={"n": "pow2"}, donate="x", verify=True)(fresh())
    x = jnp.ones(8)
    f(x)
    assert f.stats.verified == 1
    assert x.is_deleted()


def test_a_program_with_effects_is_left_out_and_the_plan_says_so(capfd):
    """What is printed is printed once."""

    @optimize(precision="bf16", verify=True)
    def printing(x):
        jax.debug.print("sum {}", jnp.sum(x))
        return x @ x

    printing(X).block_until_ready()
    jax.effects_barrier()
    assert capfd.readouterr().out.count("sum") == 1
    assert printing.stats.verified == 0
    line = next(d for d in printing.plan(X).to_dict()["decisions"] if d["name"] == "verify")
    assert not line["taken"]
    assert "DebugEffect" in line["why"]


def test_the_plan_says_what_is_compared():
    """By option and axis."""
    line = next(
        d
        for d in optimize(pad={"n": "pow2"}, verify=True)(fresh()).plan(X).to_dict()["decisions"]
        if d["name"] == "verify"
    )
    assert line["taken"]
    assert line["why"].endswith("pad over 'n'")


def test_checks_of_equinox_stay_as_they_are():
    """A check that fails reads as without `verify`."""

    @optimize(pad={"n": "pow2"}, verify=True)
    def checked(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(eqx.error_if(x, jnp.any(x < 0), "negative"))

    assert checked(X) == 28
    with pytest.raises(Exception, match="negative"):
        checked(-X)


@pytest.mark.rest
def test_results_that_are_no_arrays_are_handed_on():
    """A tuple with a string, a linear function and a sparse Jacobian."""
    f = optimize(pad={"n": "pow2"}, verify=True)(lambda_mixed)
    assert f(X)[1] == "mixed"
    program = jitney.lazy_derivatives(wrt="x", sparse=True)(optimize(verify=True)(lambda x: x**2))
    np.testing.assert_allclose(program.jacobian(X).todense(), np.diag(2 * np.asarray(X)))
    _, push = optimize(remat=True, verify=True)(fresh()).linearize(X, wrt="x")
    np.testing.assert_allclose(push(X), X - 0.28, rtol=1e-6)


def lambda_mixed(x: Float[Array, "n"]) -> tuple[Float[Array, ""], str]:
    return jnp.sum(x), "mixed"


# What is switched.


def test_off_nothing_stands_around_the_call():
    """The entry runs JAX's own function."""
    f = optimize(lambda x: x + 1)
    f(X)
    (entry,) = f._core.entries.values()
    assert entry.run is entry.jitted or SETTINGS.now.verify


@pytest.mark.rest
def test_configure_counts_from_the_next_call_on_for_functions_that_have_run(unmasked):
    """Both ways; `verify=False` of a function comes before it."""
    unmasked("reduce_sum")
    f, out = (
        optimize(pad={"n": "pow2"})(fresh()),
        optimize(pad={"n": "pow2"}, verify=False)(fresh()),
    )
    with configured(verify=False):
        f(jnp.ones(5))
        jitney.configure(verify=True)
        with pytest.raises(VerificationError):
            f(jnp.ones(5))
        out(jnp.ones(5))
        jitney.configure(verify=False)
        f(jnp.ones(5))


@pytest.mark.rest
def test_the_environment_asks_for_it(unmasked):
    """What `configure` said comes before it."""
    unmasked("reduce_sum")
    with environment(JITNEY_VERIFY="1"):
        with pytest.raises(VerificationError):
            optimize(pad={"n": "pow2"})(fresh())(jnp.ones(5))
        with configured(verify=False):
            optimize(pad={"n": "aligned"})(fresh())(jnp.ones(5))


@pytest.mark.parametrize("given", [1, "yes"])
def test_what_is_neither_true_nor_false_is_refused(given):
    """By the option and by `configure`."""
    with pytest.raises(jitney.errors.OptionError, match="verify"):
        optimize(verify=given)(fresh())
    with pytest.raises(jitney.errors.OptionError, match="verify"):
        jitney.configure(verify=given)


def test_threads_may_meet_in_a_new_program():
    """Each result is right, whoever verifies."""
    f = optimize(pad={"n": "pow2"}, verify=True)(fresh())
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, f(jnp.ones(n)))))
        for n in (5, 6, 7, 8) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for n, out in found:
        np.testing.assert_allclose(out, np.full(n, 1 - n / 100), rtol=1e-6)


# The script.


FAULT = """
from jitney._axes.rule import POINTWISE, Rule
from jitney._axes.rules import RULES
RULES["reduce_sum"] = Rule(RULES["reduce_sum"].uses, POINTWISE.pad)
"""


def run_script(path, fault=FAULT):
    """What a script prints, in a process where the fault is there."""
    code = (
        f"{fault}\nimport runpy, sys\nsys.argv = [{path!r}]\nrunpy.run_path({path!r},"
        " run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def shown(error):
    """How far the two values of a message are apart."""
    ours, plain = re.search(r" is ([-\d.e]+), and ([-\d.e]+) plainly", str(error.value)).groups()
    return abs(float(ours) - float(plain))


@pytest.mark.rest
def test_the_script_shows_the_difference_by_itself(unmasked):
    """Of a function that cannot be imported: its source is copied, with what it names."""
    unmasked("reduce_sum")
    scale = 3.0

    def scaled(y):
        return y * scale

    @optimize(pad={"n": [8, 64]}, static="label", verify=True)
    def local(x: Float[Array, "n"], w: dict, label: str = "a") -> Float[Array, "n"]:
        return scaled(x) - jnp.sum(w["by"] * x) + jnp.arange(x.shape[0], dtype=jnp.float32)

    with pytest.raises(VerificationError) as error:
        local(jnp.arange(20.0), {"by": jnp.float32(2)}, label="b")
    found = run_script(error.value.script)
    # XLA of jaxlib 0.10.0 writes lines of its own about programs that it finds kept
    assert "Traceback" not in found.stderr
    assert float(found.stdout.rpartition("largest difference: ")[2]) == pytest.approx(shown(error))


@pytest.mark.rest
def test_the_script_imports_what_can_be_imported(unmasked):
    """And takes the arguments out of files, modules too."""
    unmasked("reduce_sum")
    with pytest.raises(VerificationError) as error:
        model_sum(eqx.nn.Linear(3, 3, key=jax.random.key(0)), jnp.ones((5, 3)))
    found = run_script(error.value.script)
    # XLA of jaxlib 0.10.0 writes lines of its own about programs that it finds kept
    assert "Traceback" not in found.stderr
    assert float(found.stdout.rpartition("largest difference: ")[2]) >= shown(error) * 0.999


@optimize(pad={"n": "pow2"}, verify=True)
def model_sum(model: eqx.nn.Linear, x: Float[Array, "n 3"]) -> Float[Array, "3"]:
    return jnp.sum(jax.vmap(model)(x), axis=0)


@pytest.mark.rest
@pytest.mark.parametrize("by", ["the option", "the setting"])
def test_the_script_compiles_as_the_program_was_compiled(by, unmasked):
    """By the option or by the setting of the process."""
    unmasked("reduce_sum")
    options = {"compiler": "fast"} if by == "the option" else {}
    f = optimize(pad={"n": "pow2"}, verify=True, **options)(fresh())
    with (
        configured(compiler="fast" if by == "the setting" else "default"),
        pytest.raises(VerificationError) as error,
    ):
        f(X[:5])
    assert "compiler='fast')" in Path(error.value.script).read_text()


def test_a_program_compiled_with_less_effort_is_held_to_rounding():
    """XLA fuses other operations then: that is our option, not a fault of XLA's."""

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * x + x * 3.1 + jnp.sin(x)

    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    program = optimize(verify=True, pad={"n": "pow2"}, compiler="fast")(f)
    np.testing.assert_allclose(program(x), f(x), rtol=1e-5, atol=1e-5)
    assert program.stats.verified == 1
