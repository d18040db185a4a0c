"""The line between processes: opened whatever else connects, and however long process 0 takes."""

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from jitney._processes.channel import Channel, Hub
from jitney._processes.launch import listens_at
from jitney.errors import ProcessError
from tests._patience import patience

HOST = "127.0.0.1"


def hub_of(count):
    return Hub(count, HOST, lambda found: "", lambda message: None, patience(60))


@pytest.mark.rest
def test_idle_connections_hold_up_nothing():
    """Whoever connects and says nothing, before the processes and between them."""
    hub = hub_of(3)
    first, second = Channel(1, patience(60), patience(10)), Channel(2, patience(60), patience(10))
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection((HOST, hub.port))) for _ in range(3)]
        first.join([HOST], hub.port, hub.secret)
        idle.append(opened.enter_context(socket.create_connection((HOST, hub.port))))
        second.join([HOST], hub.port, hub.secret)
        assert hub.all_here.wait(patience(60))
        for connection in idle:
            connection.settimeout(patience(60))
            while connection.recv(100):  # the greeting, and then the end
                pass


@pytest.mark.rest
def test_many_idle_connections_hold_up_nothing():
    """More than process 0 keeps: those that were there first go first."""
    hub = hub_of(2)
    with ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(socket.create_connection((HOST, hub.port)))
        Channel(1, patience(60), patience(10)).join([HOST], hub.port, hub.secret)
        assert hub.all_here.wait(patience(60))


def test_a_process_0_that_is_slow_is_waited_for(monkeypatch):
    """As one that was stopped for seconds: it takes connections, and says nothing for longer than
    one takes to open.
    """
    monkeypatch.setattr("jitney._processes.connection.CONNECT", 0.2)
    accept, goes_on = Hub._accept, threading.Event()
    monkeypatch.setattr(
        Hub, "_accept", lambda self, count: (goes_on.wait(patience(60)), accept(self, count))
    )
    hub = hub_of(2)
    threading.Timer(1.0, goes_on.set).start()
    Channel(1, patience(60), patience(10)).join([HOST], hub.port, hub.secret)
    assert hub.all_here.wait(patience(60))


def test_of_several_names_those_that_lead_nowhere_do_not_matter():
    """One is not known, at one nobody speaks, and two lead to process 0, which takes one connection
    of each process.
    """
    hub = hub_of(2)
    with socket.create_server(("127.0.0.3", hub.port)):
        Channel(1, patience(60), patience(10)).join(
            ["no.such.host.invalid", "127.0.0.3", HOST, HOST], hub.port, hub.secret
        )
        assert hub.all_here.wait(patience(60))


def test_who_does_not_know_the_secret_does_not_take_part():
    """The time that was given decides, and the message says what was tried."""
    hub = hub_of(2)
    began = time.monotonic()
    with pytest.raises(
        ProcessError,
        match=rf"process 1 does not reach process 0 at port {hub.port} of 127.0.0.1 .* within 1 s",
    ):
        Channel(1, 1.0, patience(10)).join([HOST], hub.port, bytes(32))
    assert time.monotonic() - began < patience(30)
    assert not hub.all_here.is_set()


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:5", ("127.0.0.1", "127.0.0.1")),
        ("127.0.0.2:5", ("127.0.0.2", "127.0.0.2")),
        ("localhost:5", ("localhost", "127.0.0.1")),
        ("0.0.0.0:5", ("", "")),
        ("192.0.2.1:5", ("192.0.2.1", "")),
        ("node17:5", ("node17", "")),
        (None, ("", "")),
    ],
)
def test_process_0_listens_where_it_is_said(address, found):
    """At an address of this machine alone; what a name means, or an address of another machine, is
    not known here.
    """
    assert listens_at(address) == found
