"""Checkpoints whose files are not as they were written: never other numbers, and a sentence instead
of what orbax raises.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jitney import JitneyError
from jitney._processes.checkpoint_values import _on_devices, checksum
from jitney.processes import Checkpoints

pytest.importorskip("orbax.checkpoint")
TREE = {"w": np.linspace(0, 1, 600, dtype="f4").reshape(30, 20), "b": np.arange(7)}


def flipped(content):
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "flipped": flipped,
    "removed": None,
}


@pytest.mark.core("cut")
# orbax closes its loop before all it began has failed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_damaged_is_a_sentence_or_does_not_matter(tmp_path, damage):
    """Each file in turn; what is restored is to the bit what was saved."""
    Checkpoints(tmp_path).save(3, TREE)
    refused = 0
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if DAMAGES[damage] is None:
            file.unlink()
        elif content:
            file.write_bytes(DAMAGES[damage](content))
        try:
            step, tree = Checkpoints(tmp_path).restore(
                {name: np.zeros_like(x) for name, x in TREE.items()}
            )
        except JitneyError:
            refused += 1
        else:
            assert step == 3
            assert all(np.array_equal(tree[name], x) for name, x in TREE.items())
        file.write_bytes(content)
    assert refused >= 3


@pytest.mark.core("bool", "u1", "i2", "f4")
@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f4", "f8", "c8", "bfloat16"])
def test_a_checksum_is_the_same_wherever_an_array_lies(dtype):
    """On the host it is computed word by word; on devices each works on its part."""
    numbers = np.round(np.random.default_rng(0).normal(size=(3, 5, 7)) * 2).astype(
        ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    )
    with jax.enable_x64(True):
        assert checksum(numbers) == int(jax.jit(_on_devices)(jnp.asarray(numbers)))
    assert checksum(numbers) != checksum(numbers[::-1])
