"""What every command shares: the server it speaks to, how it prints, and how it finds what it is told by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import duly
from duly._core import address
from duly._core.address import Address
from duly._core.naming import nearest
from duly.cli import confirmation, output, stdio
from duly.embedded import explain_halt, has_server, is_halted
from duly.errors import DulyError, ServerError, Unavailable, UsageError

Inbox = duly.Queue | duly.Group
Audited = Inbox | duly.Topic
PATIENCE: Final = 5.0
"""Seconds that a command tries to reach the server: somebody waits for it."""


class NotFound(DulyError):
    """What was named is not there."""


class Session:
    """One run of a command."""

    def __init__(self, url: str | None, namespace: str, *, as_json: bool, makes_server: bool = False) -> None:
        self.makes_server = makes_server
        """Whether an embedded server is made where there is none. Looking makes none: it would find nothing."""
        self.url = url
        self.namespace = namespace
        self.as_json = as_json

    @cached_property
    def app(self) -> duly.Duly:
        """The server, connected to when it is needed."""
        server = self._address
        if server.kind == "memory":
            raise UsageError(
                "memory:// lives inside of one process, and is gone with this command: give a --url, or leave it out "
                "for the embedded server"
            )
        is_new = server.kind == "embedded" and not has_server(server.place)
        if is_new and not self.makes_server:
            raise NotFound(
                f"there is no embedded server in {server.place} yet: `duly send` makes one. "
                "If another was meant, name it with --url or DULY_URL"
            )
        if server.kind == "embedded" and is_halted(server.place):
            raise Unavailable(explain_halt(server.place))
        app = duly.Duly(self.url, namespace=self.namespace, patience=PATIENCE)
        if is_new:
            app.queues()  # starts it: what is said next is true then
            is_by_default = self.url is None and not os.environ.get("DULY_URL")
            self.note(f"new embedded server in {server.place}{' (no --url, no DULY_URL)' if is_by_default else ''}")
        return app

    @property
    def server(self) -> str:
        """The server's address for people, without user and password."""
        return self._address.shown

    @cached_property
    def _address(self) -> Address:
        return address.chosen(self.url, os.environ)

    @cached_property
    def console(self) -> Console:
        """Standard output."""
        return output.console()

    def close(self) -> None:
        """Leave the server, if there was one."""
        if "app" in self.__dict__:
            self.app.close()

    # Finding

    def inbox(self, name: str) -> Inbox:
        """Find a queue, or by events/archive a group of a topic, that exists."""
        topic, is_group, group = name.partition("/")
        if is_group:
            found: Inbox = self.app.topic(topic).group(group)
            with _as_a_courtesy():
                self.group(topic, group)
        else:
            found = self.app.queue(name)
            with _as_a_courtesy():
                self._check_known(name)
        return found

    def _check_known(self, name: str) -> None:
        if name not in (known := self.app.queues()):
            raise self._no_queue(name, known)

    def inboxes(self, names: Iterable[str] | None = None) -> list[Inbox]:
        """Find the queues and groups that are named, or all there are."""
        if names:
            return [self.inbox(name) for name in names]
        queues = self.queues()  # first: a server that is away is told by what was asked for
        return [*queues, *(group for topic in self.topics() for group in groups_of(topic))]

    def queues(self) -> list[duly.Queue]:
        """Open all queues."""
        return [self.app.queue(name) for name in self.app.queues()]

    def topics(self) -> list[duly.Topic]:
        """Open all topics."""
        return [self.app.topic(name) for name in self.app.topics()]

    def audited_as(self, name: str) -> list[Audited]:
        """Find the queue, topic or group of a name. A queue may be named as a topic is."""
        if "/" in name or name not in self.app.topics():
            return [self.inbox(name)]
        topic = self.app.topic(name)
        return [self.app.queue(name), topic] if name in self.app.queues() else [topic]

    def topic(self, name: str) -> duly.Topic:
        """Find a topic that exists."""
        topic = self.app.topic(name)
        if name not in (known := self.app.topics()):
            raise NotFound(f"there is no topic {name!r}.{nearest(name, known)} `duly topic ls` names all")
        return topic

    def group(self, topic: str, name: str) -> duly.Group:
        """Find a group that exists."""
        found = self.topic(topic)
        group = found.group(name)
        if name not in (known := [each.name for each in found.groups()]):
            raise NotFound(
                f"topic {topic!r} has no group {name!r}.{nearest(name, known)} `duly topic groups {topic}` names all"
            )
        return group

    def target(self, name: str) -> duly.Queue:
        """Open a queue to send to, which may be new. A topic is refused: no group would ever see the message."""
        queue = self.app.queue(name)
        with _as_a_courtesy():
            if not queue.stats().sent:
                self._check_new(name)
        return queue

    def _check_new(self, name: str) -> None:
        """Ask about a queue that is not there yet, if one of a name like it is: a slip, maybe."""
        if name in (known := self.app.queues()):
            return
        if name in self.app.topics():
            raise NotFound(f"{name!r} is a topic, no queue: `duly topic publish {name}`")
        if question := nearest(name, known):
            self.note(f"queue {name!r} is new.{question}")

    def _no_queue(self, name: str, known: Iterable[str]) -> NotFound:
        if name in self.app.topics():
            return NotFound(
                f"{name!r} is a topic: name one of its groups, like {name}/GROUP (`duly topic groups {name}`)"
            )
        return NotFound(f"there is no queue {name!r}.{nearest(name, known)} `duly queues` names all")

    # Printing

    def show(self, value: Any, text: RenderableType | None = None) -> None:
        """Print a value as JSON, or what a person reads instead of it."""
        if self.as_json:
            output.print_json(value)
        else:
            shown = str(value) if text is None else text
            if isinstance(shown, str):
                output.print_text(output.visible_lines(shown))
            else:
                self.console.print(shown)

    def show_stored(self, value: Any, text: str, told: str) -> None:
        """Print what a send gave back. Where that fails it is told elsewhere, so that nobody sends again."""
        try:
            self.show(value, output.visible(text))
        except (OSError, stdio.Unwritable):
            self.note(f"{told}, though it could not be printed")
            raise

    def note(self, text: str) -> None:
        """Say something that is not the result: to standard error."""
        print(f"duly: {output.visible(text)}", file=sys.stderr)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is destroyed. Without a terminal to ask on, --yes must have said it."""
        if yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"{question} Say so with --yes: there is no terminal to ask on")
        if not confirmation.is_confirmed(question):
            raise typer.Abort

    @contextmanager
    def progress(self, title: str, total: int | None, told: str = "") -> Iterator[Callable[[int], None]]:
        """Show how far long work is, on standard error, when somebody watches. Gives what `on_progress` takes.

        With `told`, like "were purged", a stop in the middle says how many.
        """
        done = 0

        def count(now: int) -> None:
            nonlocal done
            done = now
            show(now)

        try:
            with self._bar(title, total) as show:
                yield count
        except KeyboardInterrupt:
            if told:
                self.note(f"at least {done:,} {told} before it was stopped")
            raise

    @contextmanager
    def _bar(self, title: str, total: int | None) -> Iterator[Callable[[int], object]]:
        screen = output.console(to_errors=True)
        if self.as_json or not output.is_watched(screen):
            yield lambda _done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)


@contextmanager
def _as_a_courtesy() -> Iterator[None]:
    """Do without a look at what there is where there is no right to it: a producer or consumer works all the same."""
    try:
        yield
    except Unavailable:
        raise
    except ServerError:
        pass


def groups_of(topic: duly.Topic) -> list[duly.Group]:
    """Find the groups of a topic, but for those of other programs that no group of Duly can have the name of."""
    return [topic.group(name) for name in topic._group_names()]
