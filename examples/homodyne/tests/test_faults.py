"""Faults of data and disks: what is named, what is left out, what is tried again."""

from dataclasses import replace

import numpy as np
import pytest

from examples.homodyne._fit import Journal
from examples.homodyne._measurement import Measurement
from examples.homodyne._mode_fit import fit_mode
from examples.homodyne._synthetic import synthetic


def spoiled(data, *places):
    """With NaN at (angle, pair)."""
    measured = np.array(data.measured)
    for place in places:
        measured[place] = np.nan
    return replace(data, measured=measured)


def test_a_point_that_is_nan_is_named():
    """By its angle and times, and how to leave it out."""
    data = synthetic("static_isotropic", frames=20, angles=3)
    with pytest.raises(ValueError, match=r"measured\[1, 7\] is nan: angle -30 deg") as raised:
        fit_mode("static_isotropic", spoiled(data, (1, 7), (2, 9)))
    assert f"t2 = {data.t2[7]:.6g} s. 2 of 570 points are not finite" in str(raised.value)
    assert 'nan="mask"' in str(raised.value)


@pytest.mark.rest
@pytest.mark.parametrize("way", ["whole", "chunked", "streamed"])
def test_masked_points_are_left_out(way):
    """The fit is that of the points that are there, which is another one than with the value."""
    data = synthetic("static_isotropic", frames=20, angles=1)
    found = fit_mode("static_isotropic", spoiled(data, (0, 7), (0, 9)), nan="mask", way=way)
    there = np.delete(np.arange(data.t1.size), [7, 9])
    shorter = replace(data, t1=data.t1[there], t2=data.t2[there], measured=data.measured[:, there])
    sigma = found.sigma
    want = fit_mode("static_isotropic", replace(shorter, sigma=sigma))
    assert np.all(np.abs(found.x - want.x) <= 1e-4 * want.errors)
    assert found.points == want.points == data.t1.size - 2
    assert "2 points are not finite and were left out" in found.notes[0]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: replace(d, t1=d.t1 - d.t1[0]), "Pair 0 has t1 = 0 s"),
        (lambda d: replace(d, t1=d.t2, t2=d.t1), "not before it"),
        (lambda d: replace(d, phi=d.phi[:2]), "there are 2 angles"),
        (lambda d: replace(d, sigma=-1.0), "above 0"),
        (lambda d: replace(d, measured=d.measured * np.nan), r"measured\[0, 0\] is nan"),
    ],
    ids=["time zero", "order", "shape", "sigma", "nothing"],
)
def test_wrong_data_are_named(change, message):
    """Before anything is compiled."""
    data = synthetic("static_isotropic", frames=20, angles=3)
    with pytest.raises(ValueError, match=message):
        fit_mode("static_isotropic", change(data), nan="mask")


class Flaky:
    """An array whose rows from 100 on cannot be read for a while."""

    def __init__(self, array, failures):
        self.array, self.failures = array, failures
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, where):
        rows = where[-1] if isinstance(where, tuple) else where
        if isinstance(rows, slice) and rows.start == 100 and self.failures:
            self.failures -= 1
            raise OSError("the disk is away")
        return self.array[where]


def flaky(failures):
    data = synthetic("static_isotropic", frames=20, angles=3)
    return data, replace(data, measured=Flaky(data.measured, failures))


@pytest.mark.rest
def test_a_chunk_that_fails_is_read_again():
    """The fit is the same, and its success rate says that a reading failed."""
    data, broken = flaky(1)
    found = fit_mode("static_isotropic", broken, way="streamed", chunk=50)
    want = fit_mode("static_isotropic", data, way="streamed", chunk=50)
    assert found.x.tobytes() == want.x.tobytes()
    assert 0.9 < found.success_rate < want.success_rate == 1.0


@pytest.mark.rest
def test_a_chunk_that_goes_on_failing_is_named_with_its_rows():
    """After as many tries as were asked for."""
    _, broken = flaky(10)
    with pytest.raises(OSError, match="the disk is away") as raised:
        fit_mode("static_isotropic", broken, way="streamed", chunk=50, retries=1)
    assert raised.value.__notes__ == ["Reading rows 100 to 150 of 'measured' failed, 2 times."]


@pytest.mark.rest
def test_a_start_where_the_model_is_not_finite_is_named():
    """With the values of the parameters, not as a lack of rank."""
    data = synthetic("static_isotropic", frames=20, angles=3)
    with pytest.raises(ValueError, match="The model is not finite at the start") as raised:
        fit_mode(
            "static_isotropic",
            data,
            start={"D_offset": -1e12},
            bounds={"D_offset": (-1e13, 1e5)},
        )
    assert "D_offset = -1e+12" in str(raised.value)


@pytest.mark.rest
def test_a_fit_that_breaks_off_goes_on(tmp_path):
    """From its journal, to the bits of an unbroken one, and nothing is evaluated twice."""
    data = synthetic("static_isotropic", frames=20, angles=3)
    seen = []

    def breaking(at):
        def around(evaluate):
            def counted(z):
                if len(seen) == at:
                    raise KeyboardInterrupt
                seen.append(z.tobytes())
                return evaluate(z)

            return Journal(tmp_path / "fit.npz", "set 0").surroundings(counted)

        return around

    with pytest.raises(KeyboardInterrupt):
        fit_mode("static_isotropic", data, around=breaking(4))
    got = fit_mode("static_isotropic", data, around=breaking(-1))
    want = fit_mode("static_isotropic", data)
    assert got.x.tobytes() == want.x.tobytes()
    assert len(seen) == len(set(seen)) == want.evaluations
    assert got.evaluations == want.evaluations - 4


def test_noise_that_cannot_be_seen_is_said():
    """No two points have one first time, as where lags are spaced by their logarithm."""
    t1 = np.arange(1.0, 30.0)
    data = Measurement(t1, t1 + 1.0, np.ones((1, t1.size)), np.zeros(1))
    with pytest.warns(UserWarning, match="noise at angle 0 is taken as 1"):
        np.testing.assert_array_equal(data.noise(), [1.0])
