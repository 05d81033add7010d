"""`duly cancel`, `promote`, `reschedule`, `pause`, `resume`, `purge` and `delete`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from duly._core.outgoing import checked_text
from duly.cli import values
from duly.cli.parameters import STATES, At, Delay, Id, Ids, Inbox, State, Yes
from duly.cli.session import NotFound, Session
from duly.errors import UsageError

OneState = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only ready, delayed, leased, parked, dead or done messages. Default: all.",
        autocompletion=lambda: list(STATES),
    ),
]


Running = Annotated[
    bool, typer.Option("--running", help="Also cancel messages that a consumer holds. It loses the lease.")
]


def cancel(session: Session, queue: Inbox, ids: Ids, running: Running = False) -> None:
    """Cancel waiting or dead messages. Status 1 if one is unknown, finished, or held by a consumer."""
    source = session.inbox(queue)

    def why_not(id_: str) -> str:
        message = source.get(id_)
        if message is None or message.state == "done":
            return "not cancelled: unknown, finished, or cancelled before"
        return "not cancelled: a consumer holds it; --running cancels it anyway"

    _for_each(session, ids, lambda id_: source.cancel(id_, running=running), "cancelled", why_not)


def promote(session: Session, queue: Inbox, ids: Ids) -> None:
    """Make delayed messages due now. Status 1 if one is not waiting."""
    _for_each(session, ids, session.inbox(queue).promote, "promoted", lambda _: "not waiting")


def _for_each(
    session: Session, ids: Iterable[str], act: Callable[[str], bool], done: str, why_not: Callable[[str], str]
) -> None:
    for id_ in ids:
        checked_text(id_, "id")  # check all before the first change
    results = {id_: act(id_) for id_ in dict.fromkeys(ids)}  # once each: a repeated id would be reported as failed
    reasons = {id_: why_not(id_) for id_, is_done in results.items() if not is_done}
    lines = (f"{id_}  {reasons.get(id_, done)}" for id_ in results)
    rows = [
        {"id": id_, done: True} if is_done else {"id": id_, done: False, "reason": reasons[id_]}
        for id_, is_done in results.items()
    ]
    session.show({"results": rows}, "\n".join(lines))
    if reasons:
        raise typer.Exit(1)


def reschedule(session: Session, queue: Inbox, id: Id, delay: Delay = None, at: At = None) -> None:  # noqa: A002
    """Change the due time of a waiting message.

    Example: duly reschedule orders 01J8ZQ5X3V0M4T7R2K9C6D1B8F --delay 2h
    """
    if (delay is None) == (at is None):
        raise UsageError("reschedule needs one of --delay and --at")
    due = values.due(delay, at)
    source = session.inbox(queue)
    if not source.reschedule(id, **due):
        raise NotFound(f"message {id!r} of queue {queue!r} is not waiting: it is unknown, held, dead or finished")
    message = source.get(id)
    session.show({"queue": queue, "id": id, "due_at": message and message.due_at}, source.explain(id))


def pause(session: Session, queue: Inbox) -> None:
    """Stop deliveries until `duly resume`. Sends continue."""
    session.inbox(queue).pause()
    session.show({"queue": queue, "paused": True}, f"{queue} is paused; `duly resume {queue}` continues")


def resume(session: Session, queue: Inbox) -> None:
    """Continue deliveries."""
    session.inbox(queue).resume()
    session.show({"queue": queue, "paused": False}, f"{queue} is resumed")


def purge(session: Session, queue: Inbox, state: OneState = None, yes: Yes = False) -> None:
    """Delete all messages of a queue, or those in one state. This cannot be undone."""
    purge_state(session, queue, None if state is None else values.choice(state, "--state", State), yes=yes)


def purge_state(session: Session, queue: str, state: State | None, *, yes: bool) -> None:
    """Confirm, purge, and print the number. Also used for dead letters."""
    source = session.inbox(queue)
    stats = source.stats()
    there = stats.live + stats.dead + stats.done if state is None else getattr(stats, state)
    what = f"{there:,} {state or 'live, dead and finished'} message(s) of {queue}"
    purged = 0
    if there:  # else messages that arrive now would be purged without confirmation
        session.confirm(f"Purge {what} permanently?", yes=yes)
        with session.progress("purging", there, f"were purged from {queue}") as progress:
            purged = source.purge(state, on_progress=progress)
    session.show({"queue": queue, "state": state, "purged": purged}, f"{purged:,} purged from {queue}")


def delete(session: Session, queue: Inbox, yes: Yes = False) -> None:
    """Delete a queue with its messages and counters."""
    source = session.inbox(queue)
    stats = source.stats()
    session.confirm(f"Delete {queue} with {stats.live:,} live and {stats.dead:,} dead message(s) permanently?", yes=yes)
    source.delete()
    session.show({"queue": queue, "deleted": True}, f"{queue} is deleted")
