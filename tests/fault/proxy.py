"""A RESP-aware TCP proxy that loses replies, cuts requests and falls silent on command.

It knows where each command and each reply ends, so a fault hits an exact point: before the server saw the
command, in the middle of it, after the server executed it, or after the client had the reply. A `Policy`
decides the action for each command; a fault counts in `policy.fired` only once it has really happened.

Law: up to the faulted command a connection behaves as if the proxy were not there. Replies to earlier
commands of a pipeline are delivered first, and later commands of it are held back, so the outcome of every
command is known. Out of scope: CLIENT REPLY OFF and SKIP, which leave commands without a reply.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from pathlib import Path

HOST = "127.0.0.1"

SETUP_COMMANDS = frozenset({"HELLO", "CLIENT", "AUTH", "SELECT", "PING"})
"""Commands that open and keep a connection. No policy sees these: they carry no message."""

SCRIPT_COMMANDS = frozenset({"EVALSHA", "EVAL"})

STREAMING_COMMANDS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC"})
"""After one of these, replies no longer answer commands one by one: the connection is pumped unread."""


# --- Input and output of a policy --------------------------------------------------------------------------


class Stage(Enum):
    """How far a command got when the fault struck."""

    BEFORE = "before"
    """The server never saw it."""
    MID_FRAME = "mid-frame"
    """The server got a part of it: it must not execute that."""
    EXECUTED = "executed"
    """The server executed it and answered; the client does not get the answer."""
    REPLIED = "replied"
    """The client has the reply."""


@dataclass(frozen=True, slots=True)
class Command:
    """One whole command on its way to the server."""

    number: int
    """Counted over all connections of the proxy, set-up commands included, from 1."""
    connection: int
    name: str
    frame: bytes

    def args(self) -> list[bytes]:
        """Return the words after the name."""
        if not self.frame.startswith(b"*"):
            return self.frame.split()[1:]
        words: list[bytes] = []
        at = self.frame.index(b"\r\n") + 2
        while at < len(self.frame):
            body = self.frame.index(b"\r\n", at) + 2
            end = body + int(self.frame[at + 1 : body - 2])
            words.append(self.frame[body:end])
            at = end + 2
        return words[1:]


@dataclass(frozen=True, slots=True)
class Cut:
    """Close both sides at the given stage."""

    stage: Stage
    after_bytes: int = 1
    """For MID_FRAME: how much of the request is forwarded. At least one byte is always held back."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold the request (BEFORE) or the reply (EXECUTED) for a while.

    A delayed request arrives even if the client has left in the meantime, as it would on a slow wire.
    """

    seconds: float
    stage: Stage = Stage.BEFORE

    def __post_init__(self) -> None:
        _require_pause_stage(self.stage)


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Stop pumping this connection, sockets open, before the request or before its reply; `heal` ends it."""

    stage: Stage = Stage.BEFORE

    def __post_init__(self) -> None:
        _require_pause_stage(self.stage)


Action = Cut | Delay | BlackHole


def _require_pause_stage(stage: Stage) -> None:
    if stage not in {Stage.BEFORE, Stage.EXECUTED}:
        raise ValueError(f"a pause comes before the request or before the reply, not at {stage}")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that has happened. `reply` is what the client did not get in time, where there was a reply."""

    command: Command
    action: Action
    reply: bytes | None

    @property
    def was_refused(self) -> bool:
        """Whether the server answered with an error, for example NOSCRIPT, so that the command did nothing."""
        return self.reply is not None and self.reply[:1] in {b"-", b"!"}


class Policy:
    """Decides what happens to each command. This one passes all and counts; override `choose`.

    Only the proxy's thread calls it. A fault is counted before the client can notice it, so a test that has
    seen the broken connection may read `fired` at once.
    """

    def __init__(
        self,
        *,
        only: AbstractSet[str] | None = None,
        on_fire: Callable[[Fault], None] | None = None,
    ) -> None:
        self.seen = 0
        """Commands that were open to a fault."""
        self.faults: list[Fault] = []
        self._only = only
        self._on_fire = on_fire

    @property
    def fired(self) -> int:
        """How many faults have happened. A run in which it stays 0 proves nothing (H12)."""
        return len(self.faults)

    def decide(self, command: Command) -> Action | None:
        """Return the fault for this command, or None to pass it."""
        if command.name in SETUP_COMMANDS or (self._only is not None and command.name not in self._only):
            return None
        self.seen += 1
        return self.choose(command)

    def choose(self, command: Command) -> Action | None:
        """Return the fault for a command that may have one; `seen` already counts it."""
        return None

    def note(self, fault: Fault) -> None:
        """Count a fault, before the client can notice it."""
        self.faults.append(fault)

    def react(self, fault: Fault) -> None:
        """Run `on_fire` in the proxy's thread: all that shall pass has passed, and no socket is closed yet.

        A worker that is killed from here dies at this command.
        """
        if self._on_fire is not None:
            self._on_fire(fault)


class LoseReplies(Policy):
    """Let the server execute, drop the reply and cut the connection, for a share of the commands.

    The n-th command open to a fault meets the same fate for the same seed.
    """

    def __init__(
        self,
        rate: float,
        seed: int,
        *,
        only: AbstractSet[str] | None = SCRIPT_COMMANDS,
        on_fire: Callable[[Fault], None] | None = None,
    ) -> None:
        super().__init__(only=only, on_fire=on_fire)
        self.rate = rate
        self.seed = seed
        self._random = random.Random(seed)

    def choose(self, command: Command) -> Action | None:
        return Cut(Stage.EXECUTED) if self._random.random() < self.rate else None


class FaultAt(Policy):
    """One fault, at the k-th command that is open to it, counted from 1."""

    def __init__(
        self,
        k: int,
        action: Action,
        *,
        only: AbstractSet[str] | None = None,
        on_fire: Callable[[Fault], None] | None = None,
    ) -> None:
        super().__init__(only=only, on_fire=on_fire)
        self.k = k
        self.action = action

    def choose(self, command: Command) -> Action | None:
        return self.action if self.seen == self.k else None


class CutAt(FaultAt):
    """One cut, at the k-th command and the given stage: the step of a crash-point sweep.

    How many k there are is what a plain `Policy` has in `seen` after the same scenario.
    """

    def __init__(
        self,
        k: int,
        stage: Stage,
        *,
        after_bytes: int = 1,
        only: AbstractSet[str] | None = None,
        on_fire: Callable[[Fault], None] | None = None,
    ) -> None:
        super().__init__(k, Cut(stage, after_bytes), only=only, on_fire=on_fire)


class DelayEach(Policy):
    """A slow link: each command, or each reply, waits for the given time."""

    def __init__(self, seconds: float, stage: Stage = Stage.BEFORE, *, only: AbstractSet[str] | None = None) -> None:
        super().__init__(only=only)
        self.action = Delay(seconds, stage)

    def choose(self, command: Command) -> Action | None:
        return self.action


# --- Frames ------------------------------------------------------------------------------------------------

_BULKS = frozenset(b"$=!")
_WIDTHS = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
_ATTRIBUTE = ord("|")


class Frames:
    """Splits a byte stream into whole RESP2 or RESP3 frames.

    A nested frame needs no stack, only the number of elements still to come. The place is kept between
    calls, so a reply of megabytes that arrives in pieces is scanned once.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._need = 1

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """Take the next whole frame, or None when more bytes are needed."""
        while self._need:
            if not self._scan_element():
                return None
        return self._take()

    def rest(self) -> bytes:
        """Take all bytes that are left, whole frame or not."""
        self._at = len(self._buffer)
        return self._take()

    def _take(self) -> bytes:
        frame = bytes(memoryview(self._buffer)[: self._at])
        del self._buffer[: self._at]
        self._at = 0
        self._need = 1
        return frame

    def _scan_element(self) -> bool:
        """Step over one element: a line, a bulk, or the head of an aggregate."""
        buffer, at = self._buffer, self._at
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return False
        end = line_end + 2
        kind = buffer[at]
        if kind in _BULKS:
            length = int(buffer[at + 1 : line_end])
            end += length + 2 if length >= 0 else 0
            if end > len(buffer):
                return False
        elif kind in _WIDTHS:
            self._need += max(int(buffer[at + 1 : line_end]), 0) * _WIDTHS[kind]
            # An attribute is not a value: the reply that it describes follows it.
            self._need += kind == _ATTRIBUTE
        self._need -= 1
        self._at = end
        return True


def _name_of(frame: bytes) -> str:
    """Return the command's name in upper case; empty for what the server ignores (`*0`, an empty line)."""
    if frame.startswith(b"*"):
        length_at = frame.find(b"\r\n") + 2
        start = frame.find(b"\r\n", length_at) + 2
        word = frame[start : frame.find(b"\r\n", start)] if start >= length_at else b""
    else:
        word = frame[: frame.find(b"\r\n")].partition(b" ")[0]
    return word.decode("latin-1").upper()


# --- One connection ----------------------------------------------------------------------------------------


class _Link:
    """A client's connection and its own connection to the server. All of it runs in the proxy's loop."""

    def __init__(self, proxy: Proxy, number: int, client: asyncio.Transport) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._server: asyncio.Transport | None = None
        self._requests = Frames()
        self._replies = Frames()
        self._awaited = 0  # commands forwarded whose reply has not come
        # The fault to come, with the policy that asked for it: another may rule by the time it strikes.
        # Later requests wait until it is over.
        self._armed: tuple[Policy, Command, Action] | None = None
        self._held_reply: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_holed = False  # this connection alone; the proxy may be holed as a whole
        self._is_streaming = False
        self._client_left = False
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await self._proxy.open_server(_ServerSide(self))
        except OSError:
            self._client.abort()

    def server_made(self, transport: asyncio.Transport) -> None:
        self._server = transport
        if self._client_left:
            transport.abort()
            return
        self._settle_flow()
        self._pump_requests()

    def client_lost(self) -> None:
        self._client_left = True
        if self._timer is None:
            self._leave()
        self._forget_if_over()

    def server_lost(self) -> None:
        self._server = None
        self.cut()
        self._forget_if_over()

    def cut(self) -> None:
        """Close both sides; bytes that were already passed on still arrive."""
        self._cancel_timer()
        self._client.close()
        self._leave()

    def abort(self) -> None:
        """Close both sides at once."""
        self._cancel_timer()
        self._client.abort()
        if self._server is not None:
            self._server.abort()
        self._leave()

    def _leave(self) -> None:
        self._dialling.cancel()
        if self._server is not None:
            self._server.close()

    def _forget_if_over(self) -> None:
        if self._client_left and self._server is None:
            self._proxy.forget(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Requests

    def from_client(self, data: bytes) -> None:
        self._requests.feed(data)
        self._pump_requests()

    def _pump_requests(self) -> None:
        if self._server is None or self._is_silent():
            return
        passed: list[bytes] = []
        while self._armed is None and not self._is_streaming:
            frame = self._requests.next()
            if frame is None:
                break
            self._take_request(frame, passed)
        if self._is_streaming:
            passed.append(self._requests.rest())
        if passed:
            self._server.write(b"".join(passed))
        self._strike_if_ready()

    def _take_request(self, frame: bytes, passed: list[bytes]) -> None:
        """Count one command; pass it on, or arm its fault and pass it on if the server is to execute it."""
        name = _name_of(frame)
        if not name:
            passed.append(frame)
            return
        command = self._proxy.count(self._number, name, frame)
        policy = self._proxy.policy
        action = policy.decide(command)
        if name in STREAMING_COMMANDS:
            self._is_streaming = True
            self._client.write(self._replies.rest())
            passed.append(frame)
            return
        if action is not None:
            self._armed = policy, command, action
        if action is None or action.stage in {Stage.EXECUTED, Stage.REPLIED}:
            passed.append(frame)
            self._awaited += 1

    # Replies

    def from_server(self, data: bytes) -> None:
        if self._is_streaming and not self._is_silent():
            self._client.write(data)
            return
        self._replies.feed(data)
        self._pump_replies()

    def _pump_replies(self) -> None:
        passed: list[bytes] = []
        while not self._is_silent() and self._held_reply is None:
            frame = self._replies.next()
            if frame is None:
                break
            if frame.startswith(b">") or not self._awaited:
                passed.append(frame)  # a push, or the server's word without a question (too many clients)
                continue
            self._awaited -= 1
            if self._awaited or not self._awaits_fault():
                passed.append(frame)
            else:
                self._held_reply = frame
        if passed:
            self._client.write(b"".join(passed))
        self._strike_if_ready()

    def _awaits_fault(self) -> bool:
        """Whether the last awaited reply is the one that the armed fault is about."""
        return self._armed is not None and self._armed[2].stage in {Stage.EXECUTED, Stage.REPLIED}

    # Faults

    def _is_silent(self) -> bool:
        return self._is_holed or self._proxy.is_black_hole

    def _strike_if_ready(self) -> None:
        """Carry out the armed fault once all replies before it are out and its own, if any, is in hand."""
        if self._armed is None or self._awaited or self._timer is not None or self._is_silent():
            return
        policy, command, action = self._armed
        fault = Fault(command, action, self._held_reply)
        policy.note(fault)
        if isinstance(action, Cut):
            self._pass_before_cut(command, action)
        policy.react(fault)
        if isinstance(action, Cut):
            self._armed = None
            self.cut()
        elif isinstance(action, Delay):
            self._timer = asyncio.get_running_loop().call_later(action.seconds, self._go_on)
        else:
            self._is_holed = True
            self._settle_flow()

    def _pass_before_cut(self, command: Command, action: Cut) -> None:
        """Pass on the bytes that the stage lets through."""
        if action.stage is Stage.MID_FRAME and self._server is not None:
            self._server.write(command.frame[: min(action.after_bytes, len(command.frame) - 1)])
        if action.stage is Stage.REPLIED and self._held_reply is not None:
            self._client.write(self._held_reply)

    def _go_on(self) -> None:
        """End a pause: forward the held request, or deliver the held reply."""
        self._timer = None
        if self._proxy.is_black_hole:
            self._is_holed = True  # the pause ends with the silence
            return
        armed, reply = self._armed, self._held_reply
        self._armed = self._held_reply = None
        if reply is not None:
            self._client.write(reply)
        elif armed is not None and self._server is not None:
            self._awaited += 1
            self._server.write(armed[1].frame)
        self._pump_requests()
        self._pump_replies()
        if self._client_left and self._timer is None:
            self._leave()

    # Silence

    def _settle_flow(self) -> None:
        """Read from the sockets, or leave them unread and open, as the silence asks.

        An unread socket does not show that its peer has left either: that is what a black hole looks like.
        """
        for transport in (self._client, self._server):
            if transport is not None and self._is_silent():
                transport.pause_reading()
            elif transport is not None:
                transport.resume_reading()

    def hush(self) -> None:
        self._settle_flow()

    def heal(self) -> None:
        was_holed, self._is_holed = self._is_holed, False
        self._settle_flow()
        if was_holed:
            self._go_on()
            return
        if self._is_streaming:
            self._client.write(self._replies.rest())
        self._pump_requests()
        self._pump_replies()


class _ClientSide(asyncio.Protocol):
    """Gives the client's bytes to its link."""

    _link: _Link

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = self._proxy.link(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._link.from_client(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.client_lost()


class _ServerSide(asyncio.Protocol):
    """Gives the server's bytes to the link."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.server_made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._link.from_server(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.server_lost()


# --- The proxy ---------------------------------------------------------------------------------------------


class Proxy:
    """Listens on a free loopback port and pumps to one server, in its own thread.

    `policy` may be replaced at any time; the next command meets the new one. Close it, or use it in a `with`
    block: afterwards no thread, socket or loop of it is left, and an error in a policy is raised.
    """

    def __init__(self, server: int | Path, policy: Policy | None = None) -> None:
        """Start. `server` is a port on loopback, or the path of a unix socket."""
        self.policy = policy or Policy()
        self.counts: Counter[str] = Counter()
        """Whole commands received, by name, set-up commands included."""
        self.commands = 0
        """Whole commands received, of any name."""
        self.is_black_hole = False
        self._upstream = server
        self._links: set[_Link] = set()
        self._accepted = 0
        self._errors: list[BaseException] = []
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="fault-proxy", daemon=True)
        self._thread.start()
        self.port = started.result(timeout=10)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def cut_all(self) -> None:
        """Close every connection now; new ones are welcome."""
        self._in_loop(self._abort_links)

    def black_hole(self) -> None:
        """Fall silent: sockets stay open, new ones are accepted, no byte passes until `heal`."""
        self._in_loop(self._set_black_hole)

    def heal(self) -> None:
        """End every black hole. Held bytes go on their way, as TCP would send them again."""
        self._in_loop(self._end_black_hole)

    def close(self) -> None:
        """Cut all, stop listening, end the thread. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=10)
            if self._thread.is_alive():
                raise RuntimeError("the proxy's thread does not end")
        if self._errors:
            raise self._errors.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the links, in the loop

    def count(self, connection: int, name: str, frame: bytes) -> Command:
        self.counts[name] += 1
        self.commands += 1
        return Command(self.commands, connection, name, frame)

    def link(self, client: asyncio.Transport) -> _Link:
        self._accepted += 1
        link = _Link(self, self._accepted, client)
        self._links.add(link)
        return link

    def forget(self, link: _Link) -> None:
        self._links.discard(link)

    async def open_server(self, side: _ServerSide) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(self._upstream, int):
            await loop.create_connection(lambda: side, HOST, self._upstream)
        else:
            await loop.create_unix_connection(lambda: side, str(self._upstream))

    # The thread

    def _run(self, started: Future[int]) -> None:
        try:
            asyncio.run(self._serve(started))
        except OSError as error:  # no port: the constructor raises it
            started.set_exception(error)

    async def _serve(self, started: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._keep_error)
        self._stop = asyncio.Event()
        listener = await self._loop.create_server(lambda: _ClientSide(self), HOST, 0)
        started.set_result(listener.sockets[0].getsockname()[1])
        await self._stop.wait()
        listener.close()
        while self._links:  # an aborted socket is closed in the next round of the loop
            self._abort_links()
            await asyncio.sleep(0)

    def _keep_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._errors.append(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))

    def _in_loop(self, work: Callable[[], object]) -> None:
        """Do it in the proxy's thread and wait for it."""
        done: Future[object] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        done.result(timeout=10)

    def _abort_links(self) -> None:
        for link in tuple(self._links):
            link.abort()

    def _set_black_hole(self) -> None:
        self.is_black_hole = True
        for link in self._links:
            link.hush()

    def _end_black_hole(self) -> None:
        self.is_black_hole = False
        for link in tuple(self._links):
            link.heal()
