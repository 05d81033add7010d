"""`duly acl`: the permissions that a user of the server needs for a role."""

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
        help="The role: producer, consumer, observer or admin.",
        autocompletion=lambda: list(get_args(RoleName)),
    ),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="The name of the user. Default: duly- and the role.")
]
ServerVersion = Annotated[
    str | None,
    typer.Option("--server", metavar="VERSION", help="Use this version, like 7.0 or valkey-9.1, without connecting."),
]
OwnKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--own-keys", metavar="PATTERN", help="Your own keys that commits change, like 'stock:*'. Repeatable."
    ),
]
OwnCommand = Annotated[
    list[str] | None,
    typer.Option(
        "--own-command",
        metavar="NAME",
        help="A command that commits use on --own-keys. Default: all that commits support.",
    ),
]
Fsync = Annotated[
    bool, typer.Option("--fsync", help='Add CONFIG GET, which durable="fsync" needs. It shows passwords.')
]
ForCelery = Annotated[bool, typer.Option("--celery", help="Add what Celery and kombu need, for a consumer.")]


def acl(
    session: Session,
    role: Role = None,
    user: User = None,
    server: ServerVersion = None,
    own_keys: OwnKeys = None,
    own_command: OwnCommand = None,
    fsync: Fsync = False,
    celery: ForCelery = False,
) -> None:
    """Print the command that grants a user of the server the permissions of a role, and no others."""
    if role is None:
        raise UsageError("acl needs a --role: producer, consumer, observer or admin")
    role = values.choice(role, "--role", RoleName)
    if user == "":
        raise UsageError("--user: a user needs a name; without --user it is duly- and the role")
    topology = session.topology
    known = rights.ask(session.app, rights.every_command()) if server is None else rights.known_of(server)
    found = rights.rules(
        role,
        known,
        session.namespace,
        own_keys=own_keys or (),
        own_commands=own_command or (),
        fsync=fsync,
        cluster=topology == "cluster",
        celery=celery,
    )
    name = user or f"duly-{role}"
    line = rights.setuser(name, found)
    if session.as_json:
        session.show({"role": role, "server": known.title, "user": name, "rules": found, "command": line})
        return
    session.note(f"the permissions of a user on {known.title} who {rights.ROLES[role].summary}")
    session.note(f"no password is generated: replace {rights.PASSWORD} by yours, and run the line on the server")
    if topology != "single":
        session.note("users are not replicated: run it on every node, primaries and replicas, before a fail-over")
    session.note(f"it replaces the permissions of an existing user {name!r}: use a separate user for another role")
    typer.echo(line)
