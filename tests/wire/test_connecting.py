"""How a wire reaches its server: names with several addresses, IPv6, unix sockets, and the options of its socket."""

import socket
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.servers import LOOPBACK
from tests.wire.driven import Driver
from tests.wire.scripted import Peer, ScriptedServer, echo


def refusing_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def address(port: int, host: str = LOOPBACK) -> tuple[object, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))


def test_the_next_address_of_a_host_is_used_if_one_is_dead(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(lambda peer: peer.answer_all(echo)) as server:
        driver.resolve_as("two.addresses", [address(refusing_port()), address(server.port)], monkeypatch)
        wire = driver.opened({"host": "two.addresses", "port": server.port})
        assert wire.ask("ECHO", "mine") == b"mine"


def test_the_error_of_a_host_without_a_living_address_names_it_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = address(refusing_port())
    driver.resolve_as("two.addresses", [dead, dead], monkeypatch)
    with pytest.raises(ConnectionError, match=r"^cannot connect to two\.addresses:6379: Connection refused$"):
        driver.opened({"host": "two.addresses", "port": 6379})


def test_a_host_that_is_not_known_is_named(driver: Driver) -> None:
    with pytest.raises(ConnectionError, match=r"^cannot connect to no\.such\.host\.invalid:6379: .+"):
        driver.opened({"host": "no.such.host.invalid", "port": 6379})


def test_a_server_with_an_ipv6_address_is_reached(driver: Driver) -> None:
    try:
        server = ScriptedServer(lambda peer: peer.answer_all(echo), family=socket.AF_INET6, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        wire = driver.opened({"host": "::1", "port": server.port})
        assert wire.ask("ECHO", "mine") == b"mine"


def test_a_unix_socket_is_reached(driver: Driver, server: StartedServer) -> None:
    wire = driver.opened({"path": str(server("valkey").socket), "db": 1}, kind="unix", name="duly:client")
    assert wire.ask("ECHO", "mine") == b"mine"
    assert b"name=duly:client" in wire.ask("CLIENT", "LIST", "ID", wire.ask("CLIENT", "ID"))


@pytest.mark.parametrize("what", ["nothing", "a file", "a socket that nothing listens on", "a path that is too long"])
def test_a_unix_socket_that_is_not_there_is_named(driver: Driver, tmp_path: Path, what: str) -> None:
    path = tmp_path / ("s" * 120 if what == "a path that is too long" else "socket")
    if what == "a file":
        path.touch()
    if what == "a socket that nothing listens on":
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(path))
    with pytest.raises(ConnectionError, match=f"^cannot connect to {path}: .+"):
        driver.opened({"path": str(path)}, kind="unix")


def test_small_commands_are_sent_at_once_and_a_vanished_peer_is_detected(driver: Driver) -> None:
    with ScriptedServer(Peer.wait_for_end) as server:
        wire = driver.opened(server.options)
        tcp, options = socket.IPPROTO_TCP, wire.socket
        assert options.getsockopt(tcp, socket.TCP_NODELAY) == 1
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        probes = [getattr(socket, name, None) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")]
        if None not in probes:
            found = [options.getsockopt(tcp, probe) for probe in probes]
            assert found == [30, 10, 3]  # a peer is dead after 30 + 3 * 10 seconds


def test_a_closed_wire_closes_its_connection(driver: Driver) -> None:
    ended: list[bool] = []

    def wait(peer: Peer) -> None:
        peer.command()
        peer.send(b"+OK\r\n")
        assert peer.socket.recv(1) == b""
        ended.append(True)

    with ScriptedServer(wait) as server:
        wire = driver.opened(server.options, name="duly:client")
        for _ in range(2):
            wire.close()
            assert not wire.is_open
        driver.rest_until(lambda: ended)
