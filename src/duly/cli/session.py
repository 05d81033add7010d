"""The session of a command: its server, its output, and the lookup of queues, topics and groups."""

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
from duly._core.published import Published, of_queue, usable
from duly._sync.survey import Survey, survey_nodes
from duly.cli import confirmation, output, stdio
from duly.embedded import explain_halt, has_server, is_halted
from duly.errors import DulyError, ServerError, Unavailable, UsageError

Inbox = duly.Queue | duly.Group
Audited = Inbox | duly.Topic
PATIENCE: Final = 5.0
"""Seconds that a command tries to reach the server. Commands are interactive, so it is short."""


class NotFound(DulyError):
    """A named queue, topic, group or message does not exist."""


class Session:
    """One run of a command."""

    def __init__(self, url: str | None, namespace: str, *, as_json: bool, starts_server: bool = False) -> None:
        self.starts_server = starts_server
        """Whether to start an embedded server in a directory without one. Read-only commands would find it empty."""
        self.url = url
        self.namespace = namespace
        self.as_json = as_json

    @cached_property
    def app(self) -> duly.Duly:
        """The app, connected on first use."""
        server = self._address
        if server.kind == "memory":
            raise UsageError(
                "memory:// works within one process, and ends with this command: give a --url, or leave it out "
                "for the embedded server"
            )
        is_new = server.kind == "embedded" and not has_server(server.place)
        if is_new and not self.starts_server:
            raise NotFound(
                f"there is no embedded server in {server.place} yet: `duly send` starts one. "
                "To use another server, set --url or DULY_URL"
            )
        if server.kind == "embedded" and is_halted(server.place):
            raise Unavailable(explain_halt(server.place))
        app = duly.Duly(self.url, namespace=self.namespace, patience=PATIENCE)
        if is_new:
            app.queues()  # starts the server, before the note about it
            is_by_default = self.url is None and not os.environ.get("DULY_URL")
            self.note(f"new embedded server in {server.place}{' (no --url, no DULY_URL)' if is_by_default else ''}")
        return app

    @property
    def server(self) -> str:
        """The server's address without user and password."""
        return self._address.shown

    @property
    def topology(self) -> address.Topology:
        """Whether the address is of one server, of sentinels, or of a cluster."""
        return self._address.topology

    @cached_property
    def _address(self) -> Address:
        return address.chosen(self.url, os.environ)

    @cached_property
    def console(self) -> Console:
        """Standard output."""
        return output.console()

    def close(self) -> None:
        """Disconnect, if the app was used."""
        if "app" in self.__dict__:
            self.app.close()

    # Lookup

    def inbox(self, name: str) -> Inbox:
        """Return an existing queue, or an existing group of a topic by a name like events/archive."""
        topic, is_group, group = name.partition("/")
        if is_group:
            found: Inbox = self.app.topic(topic).group(group)
            with _if_permitted():
                self.group(topic, group)
        else:
            found = self.app.queue(name)
            with _if_permitted():
                self._check_known(name)
        return found

    def inbox_as_served(self, name: str) -> tuple[Inbox, list[Published]]:
        """Return an existing queue or group with the options that its workers agree on, and all that they publish."""
        found = self.inbox(name)
        views: list[Published] = []
        with _if_permitted():
            views = of_queue(self.app.workers(), name)
        if not (options := usable(views)):
            return found, views
        topic, is_group, group = name.partition("/")
        if is_group:
            return self.app.topic(topic, **options).group(group), views
        return self.app.queue(name, **options), views

    def _check_known(self, name: str) -> None:
        survey = self.survey()
        if name not in (known := survey.queues()):
            _check_reached(survey, self.app.queue(name), f"queue {name!r}")
            raise self._no_queue(name, known)

    def survey(self) -> Survey:
        """Find out which nodes of a cluster answer. The others are left out of lists."""
        return survey_nodes(self.app)

    def inboxes(self, names: Iterable[str] | None = None, survey: Survey | None = None) -> list[Inbox]:
        """Return the named queues and groups, or all on the nodes that answer."""
        if names:
            return [self.inbox(name) for name in names]
        survey = survey or self.survey()
        queues = self.queues(survey)  # first, so that errors name the queues
        return [*queues, *(group for topic in self.topics(survey) for group in groups_on(survey, topic))]

    def queues(self, survey: Survey) -> list[duly.Queue]:
        """Open all queues on the nodes that answer."""
        return [self.app.queue(name) for name in survey.queues()]

    def topics(self, survey: Survey) -> list[duly.Topic]:
        """Open all topics on the nodes that answer."""
        return [self.app.topic(name) for name in survey.topics()]

    def exit_if_missing(self, survey: Survey) -> None:
        """Print the nodes that do not answer, and exit with status 1 if there are any."""
        for each in survey.away:
            self.note(str(each))
        if survey.away:
            raise typer.Exit(1)

    def audited_as(self, name: str) -> list[Audited]:
        """Return the queue, topic or group of a name. A queue and a topic may have the same name."""
        survey = self.survey()
        if "/" in name or name not in survey.topics():
            return [self.inbox(name)]
        topic = self.app.topic(name)
        return [self.app.queue(name), topic] if name in survey.queues() else [topic]

    def topic(self, name: str) -> duly.Topic:
        """Return an existing topic."""
        topic, survey = self.app.topic(name), self.survey()
        if name not in (known := survey.topics()):
            _check_reached(survey, topic, f"topic {name!r}")
            raise NotFound(f"there is no topic {name!r}.{nearest(name, known)} `duly topic ls` lists all")
        return topic

    def group(self, topic: str, name: str) -> duly.Group:
        """Return an existing group."""
        found = self.topic(topic)
        group = found.group(name)
        if name not in (known := [each.name for each in found.groups()]):
            raise NotFound(
                f"topic {topic!r} has no group {name!r}.{nearest(name, known)} `duly topic groups {topic}` lists all"
            )
        return group

    def target(self, name: str) -> duly.Queue:
        """Return a queue to send to, which may be new. A topic is refused: its groups would not receive the message."""
        queue = self.app.queue(name)
        with _if_permitted():
            if not queue.stats().sent:
                self._check_new(name)
        return queue

    def _check_new(self, name: str) -> None:
        """Print a note if the queue is new but a similar name exists, which may be a typo."""
        survey = self.survey()
        if name in (known := survey.queues()):
            return
        if name in survey.topics():
            raise NotFound(f"{name!r} is a topic, not a queue: `duly topic publish {name}`")
        if question := nearest(name, known):
            self.note(f"queue {name!r} is new.{question}")

    def _no_queue(self, name: str, known: Iterable[str]) -> NotFound:
        if name in self.survey().topics():
            return NotFound(
                f"{name!r} is a topic: name one of its groups, like {name}/GROUP (`duly topic groups {name}`)"
            )
        return NotFound(f"there is no queue {name!r}.{nearest(name, known)} `duly queues` lists all")

    # Printing

    def show(self, value: Any, text: RenderableType | None = None) -> None:
        """Print a value as JSON, or its text for people."""
        if self.as_json:
            output.print_json(value)
        else:
            shown = str(value) if text is None else text
            if isinstance(shown, str):
                output.print_text(output.visible_lines(shown))
            else:
                self.console.print(shown)

    def show_list(
        self,
        noun: str,
        found: Any,
        text: RenderableType | None = None,
        *,
        following: str | None = None,
        **more: Any,
    ) -> None:
        """Print a list, in the shape of the HTTP API: objects under their noun, and the `--after` of the next page."""
        self.show({noun: found, **more, "next": following}, text)
        if following and not self.as_json:
            self.note(f"there may be more: --after {following}")

    def show_stored(self, value: Any, text: str, notice: str) -> None:
        """Print the result of a send. If that fails, print a notice instead, so that it is not sent again."""
        try:
            self.show(value, output.visible(text))
        except (OSError, stdio.Unwritable):
            self.note(f"{notice}, but this could not be printed")
            raise

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        print(f"duly: {output.visible(text)}", file=sys.stderr)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before data is deleted. Without a terminal, --yes is required."""
        if yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"{question} Confirm with --yes: there is no terminal to ask on")
        if not confirmation.is_confirmed(question):
            raise typer.Abort

    @contextmanager
    def progress(self, title: str, total: int | None, notice: str = "") -> Iterator[Callable[[int], None]]:
        """Show a progress bar on standard error if it is a terminal. Yields a function for `on_progress`.

        With `notice`, like "were purged", a stop prints the number so far.
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
            if notice:
                self.note(f"at least {done:,} {notice} before it was stopped")
            raise

    @contextmanager
    def _bar(self, title: str, total: int | None) -> Iterator[Callable[[int], object]]:
        screen = output.console(to_errors=True)
        if self.as_json or not output.is_interactive(screen):
            yield lambda _done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)


@contextmanager
def _if_permitted() -> Iterator[None]:
    """Skip a check for which the user has no permission. Producers and consumers work without it."""
    try:
        yield
    except Unavailable:
        raise
    except ServerError:
        pass


def _check_reached(survey: Survey, source: duly.Queue | duly.Topic, title: str) -> None:
    """Raise Unavailable for a queue or topic that is not listed because its node is away."""
    away = survey.absence_of(source)
    if away is not None:
        raise Unavailable(f"{title} is on a node that does not answer: {away.node}, {away.reason}")


def missing_nodes(survey: Survey) -> dict[str, Any]:
    """Return the field of --json that lists the nodes of a cluster that do not answer, if there are any."""
    away = [{"node": str(each.node), "reason": each.reason} for each in survey.away]
    return {"missing": away} if away else {}


def groups_on(survey: Survey, topic: duly.Topic) -> list[duly.Group]:
    """Return the groups of a topic, or none if its node is away."""
    return survey.read(topic, lambda: _groups_of(topic)) or []


def _groups_of(topic: duly.Topic) -> list[duly.Group]:
    """Return the groups of a topic, without groups of other programs whose names Duly does not accept."""
    return [topic.group(name) for name in topic._group_names()]
