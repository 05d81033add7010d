"""The listener of a wire: a worker learns of a reply in the turn of the event loop in which it has arrived."""

import asyncio
from typing import Any, Final

import pytest
import uvloop

from duly._async.wire import AsyncWire
from tests.wire.scripted import Peer, Script, ScriptedServer

every_loop = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
CALLS: Final = ["listener: True, True", "callback"]
"""The listener, when both replies are there, and then the callback of the first."""


def heard(script: Script, new_loop: Any) -> tuple[list[str], asyncio.Future[Any]]:
    """Begin two commands. Return the calls at the first reply, and the future of the second."""
    with ScriptedServer(script) as server, asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_heard(server))


async def _heard(server: ScriptedServer) -> tuple[list[str], asyncio.Future[Any]]:
    wire = AsyncWire("tcp", server.options)
    await wire.open()
    calls: list[str] = []
    has_called = asyncio.Event()
    first = await wire.begin([b"PING"])
    second = wire.begin_next([b"PING"])
    first.add_done_callback(lambda _: calls.append("callback"))

    def listen() -> None:
        calls.append(f"listener: {first.done()}, {second.done()}")
        has_called.set()

    wire.listener = listen
    await asyncio.wait_for(has_called.wait(), 20)
    wire.listener = None
    await wire.close()
    await asyncio.sleep(0)
    return calls, second


@every_loop
def test_a_listener_is_called_after_all_replies_and_before_any_callback(new_loop: Any) -> None:
    def both_at_once(peer: Peer) -> None:
        peer.command()
        peer.command()
        peer.send(b":1\r\n:2\r\n")
        peer.wait_for_end()

    calls, second = heard(both_at_once, new_loop)
    assert calls == CALLS
    assert second.result() == 2


@every_loop
def test_a_listener_is_called_when_the_connection_has_ended(new_loop: Any) -> None:
    def closing(peer: Peer) -> None:
        peer.command()
        peer.command()

    calls, second = heard(closing, new_loop)
    assert calls == CALLS
    assert isinstance(second.exception(), ConnectionError)
