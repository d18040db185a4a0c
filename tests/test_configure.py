"""What JAX starts with, in processes of their own; and what of it comes too late."""

import json
import os
import subprocess
import sys

import jax
import pytest

import jitney
from jitney._jax.xla.memory import free_bytes
from jitney.errors import OptionError

SCRIPT = """
import json, os, sys, warnings
import jax
if "late" in sys.argv: jax.devices()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import jitney
from jitney._devices.configure import backend_started
asked = dict(started=backend_started(), warned=[str(w.message) for w in caught if issubclass(w.category, jitney.JitneyWarning)])
if "configure" in sys.argv: jitney.configure(threads=7, platform="cpu", memory=0.25)
facts = jitney.devices()
threads = len(os.listdir("/proc/self/task"))
print(json.dumps(dict(asked, now=backend_started(), threads=threads, told=facts.threads, cores=jax.config.jax_num_cpu_devices,
      platform=jax.config.jax_platforms, part=os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), most=facts.most_bytes)))
"""


def started(*words: str, **environment: str) -> dict:
    """What a process says that starts with these."""
    names = (
        "JITNEY_THREADS",
        "JITNEY_MEMORY",
        "JITNEY_PLATFORM",
        "PJRT_NPROC",
        "NPROC",
        "XLA_FLAGS",
    )
    env = (
        {name: value for name, value in os.environ.items() if name not in names}
        | {"JAX_PLATFORMS": "cpu"}
        | environment
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_the_environment_says_how_many_threads_xla_starts():
    """It is read by jitney's import, which starts nothing; six threads more are more, and a part
    and a size are kept apart.
    """
    one, ten = (
        started(JITNEY_THREADS="1", JITNEY_MEMORY="2GiB"),
        started("configure", JITNEY_THREADS="10"),
    )
    assert (one["started"], one["now"], one["warned"]) == (False, True, [])
    assert (one["told"], one["most"], one["part"], one["cores"]) == (1, 2**31, None, -1)
    assert ten["threads"] >= one["threads"] + 6  # `configure` comes before the environment
    assert (ten["told"], ten["platform"], ten["part"], ten["most"]) == (7, "cpu", "0.25", None)


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_size_of_the_environment_may_begin_with_zero():
    """`0.5GiB` is a size, and no part of a GPU's memory."""
    assert started(JITNEY_MEMORY="0.5GiB")["most"] == 2**29


@pytest.mark.rest
def test_an_environment_that_comes_too_late_is_a_warning():
    """With what it was, and what to do; nothing is set."""
    late = started("late", JITNEY_THREADS="3", JITNEY_PLATFORM="cpu")
    assert late["started"]
    assert late["told"] is None
    (text,) = late["warned"]
    assert "`threads` comes too late" in text
    assert "import jitney first" in text


def test_what_comes_too_late_is_an_error():
    """And changes nothing; what is so already may be said again."""
    jax.devices()
    before = dict(os.environ)
    for options in ({"threads": 3}, {"memory": 0.5}, {"platform": "rocket"}):
        with pytest.raises(OptionError, match=f"`{next(iter(options))}` comes too late"):
            jitney.configure(cache=True, **options)
    assert dict(os.environ) == before
    if jax.config.jax_platforms:
        jitney.configure(platform=jax.config.jax_platforms)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"threads": "few"},
        {"memory": "much"},
        {"memory": 1.5},
        {"platform": "c p u"},
        {"platform": 3},
    ],
)
def test_a_value_that_makes_no_sense_is_an_error(wrong):
    """With its name and the value."""
    ((name, value),) = wrong.items()
    with pytest.raises(OptionError, match=f"{name}={value!r}"):
        jitney.configure(**wrong)


def test_memory_bounds_what_auto_takes():
    """From then on, and until it is taken back."""
    free = free_bytes()
    try:
        jitney.configure(memory="1MiB")
        assert free_bytes() == 2**20 < free
        assert jitney.devices().most_bytes == 2**20
    finally:
        jitney.configure(memory="auto")
    assert free_bytes() > 2**20


def test_devices_are_those_of_jax():
    """With the least of the limits on cores, as a table and as data."""
    found = jitney.devices()
    assert [each.name for each in found.devices] == [str(each) for each in jax.devices()]
    assert 0 < found.host_free <= found.host_bytes
    assert json.loads(json.dumps(found.to_dict()))["cores"][0] == {
        "by": "the machine",
        "value": os.cpu_count(),
    }
    assert str(found).startswith(
        f"{jax.device_count()} devices; {found.allowed_cores.value} cores, by "
    )
    assert "memory" in found._repr_html_()
