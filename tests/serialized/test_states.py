"""States in programs that are kept: their fields are those of the module, and their rules are code
like any other.
"""

import equinox as eqx
import jax.numpy as jnp
import pytest

from tests.serialized import _lab as lab
from tests.serialized.test_kept import FOUND, KEPT

TEXT = """
import jax.numpy as jnp
import jitney
from jaxtyping import Array, Float


class Economy(jitney.states.State):
    log_capital: Float[Array, "sector"]
    labour: Float[Array, ""]

    @jitney.states.derived
    def capital(self) -> Float[Array, "sector"]:
        return RULE

    @jitney.states.derived
    def output(self) -> Float[Array, "sector"]:
        return self.capital**0.5 * self.labour


def called(state: Economy, vector):
    return state.output, Economy.of(vector), state.of(2 * state.array)


program = jitney.optimize(cache="program")(called)
"""


@pytest.mark.rest
def test_a_state_is_an_argument_and_a_result_and_its_rules_are_those_of_now(folder, tmp_path):
    """Its class is the one of this process, and a rule that is edited is the one that is computed
    with.
    """
    vector = jnp.asarray([0.1, 0.2, 1.5])
    for rule, note in (
        ("jnp.exp(self.log_capital)", KEPT),
        ("jnp.exp(self.log_capital)", FOUND),
        ("self.log_capital", KEPT),
    ):
        lab.write(tmp_path, {"lab_main.py": TEXT.replace("RULE", rule)})
        with lab.process(tmp_path) as main:
            state = main.Economy.of(vector)
            out = main.program(state, vector)
            assert lab.notes(main.program) == note
            assert eqx.tree_equal(out, main.called(state, vector), rtol=1e-6)
            assert [type(part) for part in out[1:]] == [main.Economy] * 2
