"""The listener of a wire: a worker learns of a reply in the turn of the event loop in which it has arrived."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from duly._async.wire import AsyncWire
from tests.wire.scripted import Peer, ScriptedServer

LOOPS: list[Any] = [asyncio.new_event_loop, uvloop.new_event_loop]


async def heard(server: ScriptedServer) -> tuple[list[str], asyncio.Future[Any]]:
    """Begin two commands. Return what the listener heard with the first reply, and the future of the second."""
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


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_listener_is_called_after_all_replies_and_before_any_callback(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def both_at_once(peer: Peer) -> None:
        peer.command()
        peer.command()
        peer.send(b":1\r\n:2\r\n")
        peer.wait_for_end()

    with ScriptedServer(both_at_once) as server, asyncio.Runner(loop_factory=new_loop) as runner:
        calls, second = runner.run(heard(server))
    assert calls == ["listener: True, True", "callback"]
    assert second.result() == 2


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_listener_is_called_when_the_connection_has_ended(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def closing(peer: Peer) -> None:
        peer.command()
        peer.command()

    with ScriptedServer(closing) as server, asyncio.Runner(loop_factory=new_loop) as runner:
        calls, second = runner.run(heard(server))
    assert calls == ["listener: True, True", "callback"]
    assert isinstance(second.exception(), ConnectionError)
