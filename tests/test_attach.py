"""Ways into a run that goes on: the profiler server, the signal, and the capture."""

import os
import signal
import socket
import subprocess
import sys
import threading

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._command.arguments import main
from jitney._devices.attach import live_programs
from jitney.errors import OptionError

unix = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of Unix")


def plain(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


@pytest.fixture
def usr1():
    """Restore the handler."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def send() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    for thread in threading.enumerate():
        if thread.name == "jitney-report":
            thread.join()


@unix
def test_a_signal_prints_the_programs_that_are_alive(usr1, capfd):
    """Counts and decisions, without a trace; a handler that was there is called too."""
    total = jitney.optimize(pad={"n": "pow2"})(plain)
    total(jnp.ones(3))
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    for _ in range(2):
        jitney.configure(report_signal="SIGUSR1")
    traces = total.stats.traces
    send()
    said = capfd.readouterr().err
    assert f"process {os.getpid()}" in said
    assert "plain() at test_attach.py:" in said
    assert "    pad" in said or "    fill" in said or "    mask" in said
    assert heard == [signal.SIGUSR1]
    assert total.stats.traces == traces


@pytest.mark.rest
def test_the_programs_are_data():
    """With the seconds that decide their order."""
    total = jitney.optimize(pad={"n": "pow2"})(plain)
    total(jnp.ones(3))
    records = live_programs()
    assert [each["seconds"] for each in records] == sorted(
        (each["seconds"] for each in records), reverse=True
    )
    (own,) = [each for each in records if each["function"].startswith("plain() at test_attach")]
    assert own["calls"] >= 1
    assert all(line["why"] for line in own["plan"])


@pytest.mark.rest
@pytest.mark.parametrize("given", ["SIGINT", "USR1", 9, True])
def test_a_signal_that_means_something_else_is_refused(given):
    """With those that may be taken."""
    with pytest.raises(OptionError, match="report_signal="):
        jitney.configure(report_signal=given)


@unix
@pytest.mark.rest
def test_a_handler_is_set_in_the_main_thread_alone():
    """As Python wants it; nothing else is set then."""
    caught = []

    def other() -> None:
        try:
            jitney.configure(report_signal="SIGUSR1", verify=True)
        except OptionError as error:
            caught.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "in another thread" in caught[0]


@pytest.mark.rest
@pytest.mark.parametrize("port", [0, -1, 2**16, True, "9999", 9.5])
def test_what_is_no_port_is_refused(port):
    """With what one is."""
    with pytest.raises(OptionError, match="is not a port"):
        jitney.configure(profiler_port=port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@pytest.mark.rest
def test_the_server_listens():
    """Once; another port is refused, and one that is taken."""
    port = free_port()
    script = f"""
import socket, jitney
from jitney.errors import OptionError
with socket.socket() as taken:
    taken.bind(("", 0)); taken.listen()
    try: jitney.configure(profiler_port=taken.getsockname()[1])
    except OptionError as error: print("cannot be used" in str(error))
for _ in range(2): jitney.configure(profiler_port={port}, platform="cpu")
socket.create_connection(("127.0.0.1", {port})).close()
try: jitney.configure(profiler_port={port} - 1)
except OptionError as error: print("capture from port {port}" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["True", "True"], 0), done.stderr


XPROF = """
import jax, jax.numpy as jnp, sys
def trace(address, folder, workers, include, milliseconds, attempts, options):
    assert address.startswith("127.0.0.1:") and milliseconds == 1500, (address, milliseconds)
    with jax.profiler.trace(folder):
        jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((50, 50))).block_until_ready()
"""


@pytest.mark.rest
def test_a_capture_is_read(tmp_path, monkeypatch, capsys):
    """Through JAX's own command, beside a stand-in for xprof that writes what xprof would."""
    package = tmp_path / "packages" / "xprof" / "convert"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "_pywrap_profiler_plugin.py").write_text(XPROF)
    (package / "raw_to_tool_data.py").write_text(
        "def xspace_to_tool_data(*given): return '{\"traceEvents\": []}', ''"
    )
    paths = [str(package.parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.syspath_prepend(paths[0])
    out = tmp_path / "traces"
    assert main(["profile", ":9999", "--seconds", "1.5", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "lambda" in said
    assert f"xprof --logdir {out}" in said
    (package / "_pywrap_profiler_plugin.py").write_text(
        "def trace(*given): raise OSError('nobody')"
    )
    (tmp_path / "none").mkdir()
    assert main(["profile", ":9999", "--out", str(tmp_path / "none")]) == 2
    assert "nobody" in capsys.readouterr().err


@pytest.mark.rest
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["localhost"], "'localhost' is not an address"),
        (["localhost:9999", "--seconds", "0"], "--seconds 0 is not a length"),
        (["localhost:9999"], "xprof is not installed"),
    ],
)
def test_what_cannot_be_captured_is_a_sentence(typed, said, capsys, monkeypatch):
    """And status 2."""
    monkeypatch.setattr("jitney._command.capture.importlib.util.find_spec", lambda name: None)
    assert main(["profile", *typed]) == 2
    assert said in capsys.readouterr().err
