"""`duly acl`: the rights that a user of the server needs for a role."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import typer

from duly import acl as rights
from duly.cli import values
from duly.cli.session import Session
from duly.errors import UsageError

RoleName = Literal["producer", "consumer", "observer", "admin"]
Role = Annotated[
    str | None,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="Whose rights: producer, consumer, observer or admin.",
        autocompletion=lambda: list(get_args(RoleName)),
    ),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="The name of the user. Default: duly- and the role.")
]
ServerVersion = Annotated[
    str | None,
    typer.Option("--server", metavar="VERSION", help="Ask no server: the rights for one like 7.0 or valkey-9.1."),
]
OwnKeys = Annotated[
    list[str] | None,
    typer.Option("--own-keys", metavar="PATTERN", help="Keys of yours that commits change, like 'stock:*'. Repeats."),
]
OwnCommand = Annotated[
    list[str] | None,
    typer.Option("--own-command", metavar="NAME", help="A command that commits use there. Default: all that they can."),
]
Fsync = Annotated[
    bool, typer.Option("--fsync", help='Also what durable="fsync" needs: CONFIG GET, which shows passwords.')
]


def acl(
    session: Session,
    role: Role = None,
    user: User = None,
    server: ServerVersion = None,
    own_keys: OwnKeys = None,
    own_command: OwnCommand = None,
    fsync: Fsync = False,
) -> None:
    """Print the command that gives a user of the server the rights of a role, and no others."""
    if role is None:
        raise UsageError("acl needs a --role: producer, consumer, observer or admin")
    role = values.choice(role, "--role", RoleName)
    if user == "":
        raise UsageError("--user: a user needs a name; without --user it is duly- and the role")
    known = rights.ask(session.app, rights.every_command()) if server is None else rights.known_of(server)
    found = rights.rules(
        role, known, session.namespace, own_keys=own_keys or (), own_commands=own_command or (), fsync=fsync
    )
    name = user or f"duly-{role}"
    line = rights.setuser(name, found)
    if session.as_json:
        session.show({"role": role, "server": known.title, "user": name, "rules": found, "command": line})
        return
    session.note(f"the rights of a user on {known.title} who {rights.ROLES[role].summary}")
    session.note(f"no password is made up: put yours in place of {rights.PASSWORD}, and give the line to the server")
    session.note(f"it replaces the rights that a user {name!r} may have there: another role needs a user of its own")
    typer.echo(line)
