"""The protocol of the server, RESP2: commands, replies, error replies, and the commands that begin a session."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hiredis import Reader, pack_command

from duly._core.pieces import LARGE_PIECE, Pieces
from duly.errors import DulyError, UsageError

Arg = bytes | str | int | Pieces
_pack: Final[Callable[[tuple[Arg, ...]], bytes]] = pack_command  # type: ignore[assignment]


def packed(command: Sequence[Arg]) -> list[bytes]:
    """Write a command as the server reads it: in one piece, unless it has large arguments.

    Numbers are written here. hiredis 3.5 ends the process with a segmentation fault when a signal handler raises (as
    Ctrl-C does) while it writes one.
    """
    args: list[Any] = [b"%d" % arg if type(arg) is int else arg for arg in command]
    if max(map(len, args)) >= LARGE_PIECE:
        return _in_pieces(args)
    return [_pack(tuple(args))]


def _in_pieces(args: Sequence[bytes | str | Pieces]) -> list[bytes]:
    """Write a command with large arguments. hiredis would copy them twice."""
    found: list[bytes] = []
    small = [b"*%d\r\n" % len(args)]
    for arg in args:
        raw = arg.encode() if isinstance(arg, str) else arg
        small.append(b"$%d\r\n" % len(raw))
        for piece in raw.pieces if isinstance(raw, Pieces) else (raw,):
            if len(piece) < LARGE_PIECE:
                small.append(piece)
            else:
                found += (b"".join(small), piece)
                small = []
        small.append(b"\r\n")
    return [*found, b"".join(small)]


def packed_both(first: Sequence[Arg], second: Sequence[Arg]) -> list[bytes]:
    """Write two commands, the first one together with the beginning of the second."""
    head, *tail = packed(second)
    return [b"".join([*packed(first), head]), *tail]


UNFINISHED: Final = object()
"""Returned by a reader that needs more bytes."""

_DENIALS: Final = ("NOPERM", "NOAUTH", "WRONGPASS")
_LOGIN_REFUSALS: Final = ("ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH")


class ReplyError(Exception):
    """A reply that is not a value."""


class ErrorReply(ReplyError):
    """The server refused a command. Its text begins with a code, for example NOPERM."""

    @property
    def code(self) -> str:
        """The first word."""
        return str(self).partition(" ")[0]

    @property
    def refuses_login(self) -> bool:
        """Whether the server refuses the user or the password."""
        return self.code in ("NOAUTH", "WRONGPASS") or str(self).startswith(_LOGIN_REFUSALS)

    @property
    def leaves_command_out(self) -> bool:
        """Whether the server denies or lacks this command alone, and other commands may work."""
        return self.code == "NOPERM" or "unknown" in str(self).lower()

    @property
    def is_denial(self) -> bool:
        """Whether the server refuses the login, or denies the user a command or key."""
        return self.code in _DENIALS or self.refuses_login


class MalformedReply(ReplyError):
    """The peer sent bytes that are not a reply. Usually it is not a Redis or Valkey server."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the reply is not in the Redis protocol: {text}")


class UnfinishedReply(TimeoutError):
    """A reply has begun, and was not complete in time."""

    def __init__(self) -> None:
        super().__init__("the server did not complete its reply in time")


def copied(error: Exception) -> Exception:
    """Return an equal error. Two callers must not share one, since each adds its traceback."""
    twin = type(error).__new__(type(error), *error.args)  # without __init__, which need not take these arguments
    twin.args = error.args
    return twin


REPLY_TYPES: Final = frozenset({bytes, int, list, type(None), ErrorReply})
"""The types of RESP2. The reader also knows RESP3, whose pushes are not replies, and would displace later ones."""


def new_reader() -> Reader:
    """Return a reader of replies for one connection."""
    return Reader(protocolError=MalformedReply, replyError=ErrorReply, notEnoughData=UNFINISHED)


def unexpected(reply: object) -> ReplyError:
    """Return the error for a reply without a command. A server that refuses a connection sends its reason like this."""
    if isinstance(reply, ErrorReply):
        return reply
    return MalformedReply("there is a reply without a command")


class Greeting(NamedTuple):
    """A command that begins a session."""

    command: Sequence[Arg]
    is_required: bool
    """Whether the session fails if the user may not run the command, or the server does not know it."""


Part = str | bytes
Credentials = Callable[[], Part | Sequence[Part | None] | None]
"""Returns a user and a password, or a password alone. Called for each new connection, since tokens expire."""


def login_of(options: Mapping[str, Any]) -> list[Arg]:
    """Return the arguments of AUTH: user and password, or a password alone. Empty: there is no login.

    A function that returns them may block. A failure counts as an outage, which ends: a token service may be down.
    """
    own: Credentials | None = options.get("credentials")
    if own is None:
        return _login(options.get("username"), options.get("password"))
    try:
        given = own()
    except (OSError, DulyError):
        raise
    except Exception as error:
        raise ConnectionError(f"credentials() raised {type(error).__name__}: {error}") from error
    parts = given if isinstance(given, tuple | list) else [given]
    if len(parts) > 2 or not all(part is None or isinstance(part, str | bytes) for part in parts):
        raise UsageError("credentials() must return a user and a password, or a password: each of them a text")
    return _login(*[None, None, *parts][-2:])


def _login(user: Part | None, password: Part | None) -> list[Arg]:
    if user:
        return [user, password or ""]  # a user with `nopass` accepts any password
    return [password] if password else []


def greetings(options: Mapping[str, Any], login: Sequence[Arg], name: str) -> list[Greeting]:
    """Return the commands that begin a session: log in, set the name, select the database.

    `name` is the name in CLIENT LIST unless the options have one. A user without permission for it stays unnamed.
    """
    commands = [Greeting([b"AUTH", *login], is_required=True)] if login else []
    if own := options.get("client_name"):
        commands.append(Greeting([b"CLIENT", b"SETNAME", own], is_required=True))
    elif name:
        commands.append(Greeting([b"CLIENT", b"SETNAME", name], is_required=False))
    if database := options.get("db"):
        commands.append(Greeting([b"SELECT", int(database)], is_required=True))
    return commands
