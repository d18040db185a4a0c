"""One fit of `examples/homodyne` by several processes, against one process."""

import json

import numpy as np
import pytest

from examples.homodyne import Data
from examples.homodyne.processes import fitted, measurement

from ._processes import start


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The fit of all points, and what two processes found."""
    folder = tmp_path_factory.mktemp("homodyne")
    data = Data.make(folder, 20_000, angles=3)
    (folder / "own.json").write_text(json.dumps({"frames": data.frames, "angles": data.angles}))
    alone = fitted(measurement(data, slice(None)), "whole")
    return alone, start("correlations", 2, folder=str(folder))


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_a_fit_of_parts_is_that_of_all(runs, way):
    """To what the order of sums leaves, and to the same bits in each process."""
    alone, (first, second) = runs
    assert first.code == second.code == 0, first.err
    assert first[way] == second[way]
    np.testing.assert_allclose([*map(float.fromhex, first[way])], alone.x, rtol=1e-11)
    assert first[f"{way}_points"] == alone.points


def test_processes_that_start_apart_are_refused(runs):
    """In each of them, before anything is summed."""
    for process in runs[1]:
        assert "not at the same parameters: they are 1 apart" in process["refused"]
