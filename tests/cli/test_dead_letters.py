"""`duly dead ls|show|redrive|purge`."""

from datetime import UTC, datetime, timedelta

import pytest

import duly
from tests.cli.shell import Shell, given_dead


@pytest.fixture
def letters(app: duly.Duly) -> list[str]:
    queue = app.queue("payments")
    return [
        given_dead(queue, {"n": 1}, "Timeout: bank", key="eu-1", headers={"shop": "a"}),
        given_dead(queue, {"n": 2}, "ValueError: sum", key="us-1", headers={"shop": "b"}),
        given_dead(queue, {"n": 3}, "Timeout: mail", key="eu-2", headers={"shop": "b"}),
    ]


def test_ls_lists_and_filters(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    everything = shell.ok("dead", "ls", "payments").lines
    chosen = shell.ok(
        *("dead", "ls", "payments", "--json", "--error", "Timeout", "--key", "eu-*", "--header", "shop=b"),
        *("--since", "2020-01-01T00:00Z", "--until", (datetime.now(UTC) + timedelta(days=1)).isoformat()),
    ).json["messages"]
    some = shell.run("dead", "ls", "payments", "--limit", "2", "--reason", "*")
    recent = shell.ok("dead", "ls", "payments", "--since", "2h", "--json").json["messages"]
    old = shell.ok("dead", "ls", "payments", "--until", "2h", "--json").json["messages"]
    none = shell.ok("dead", "ls", "payments", "--since", (datetime.now(UTC) + timedelta(days=1)).isoformat()).lines

    assert [line.split()[0] for line in everything] == ["ID", *letters]
    assert "ValueError: sum" in everything[2]
    assert [each["id"] for each in chosen] == [letters[2]]
    assert [line.split()[0] for line in some.lines] == ["ID", *letters[:2]]
    assert "there may be more" in some.err
    assert ([each["id"] for each in recent], old) == (letters, [])
    assert len(none) == 1


def test_ls_shows_a_filtered_list_page_by_page(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    some = ("dead", "ls", "payments", "--error", "Timeout", "--limit", "1")

    first = shell.run(*some)
    second = shell.ok(*some, "--after", letters[0], "--json").json
    newest = shell.ok("dead", "ls", "payments", "--newest", "--after", letters[2], "--json").json
    app.queue("payments").redrive(where={"ids": letters[:1]})
    gone = shell.run(*some, "--after", letters[0])

    assert first.err == f"duly: there may be more: --after {letters[0]}\n"
    assert ([each["id"] for each in second["messages"]], second["next"]) == ([letters[2]], letters[2])
    assert [each["id"] for each in newest["messages"]] == [letters[1], letters[0]]
    assert gone.status == 1
    assert f"--after: message '{letters[0]}' is not a dead letter of payments any more" in gone.err


def test_show_is_for_dead_letters(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    live = app.queue("payments").send("live")

    assert "Timeout: bank" in shell.ok("dead", "show", "payments", letters[0]).out
    refused = shell.run("dead", "show", "payments", live)

    assert refused.status == 1
    assert f"message '{live}' of payments is not a dead letter, it is ready: `duly show` shows it" in refused.err


def test_redrive_puts_back_matching_dead_letters(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    queue = app.queue("payments")
    redrive = ("dead", "redrive", "payments")

    dry = shell.ok(*redrive, "--error", "Timeout", "--dry-run").out
    one = shell.ok(*redrive, "--id", letters[1], "--json").json
    elsewhere = shell.ok(*redrive, "--header", "shop=a", "--to", "slow", "--at-end", "--rate", "50/s").out
    rest = shell.ok(
        *redrive, "--limit", "5", "--key", "eu-*", "--since", "1000000000", "--until", "99999999999", "--reason", "*"
    )

    assert dry == "2 would be redriven in payments\n"
    assert one == {"queue": "payments", "to": None, "dry_run": False, "redriven": 1}
    assert elsewhere == "1 redriven from payments to slow\n"
    assert rest.out == "1 redriven in payments\n"
    assert app.queue("slow").stats().ready == 1
    assert (queue.stats().ready, queue.stats().dead) == (2, 0)


def test_a_new_queue_with_a_similar_name_is_noted(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    slip = shell.run("dead", "redrive", "payments", "--id", letters[0], "--to", "payment")
    shell.ok("dead", "redrive", "payments", "--to", "payment")

    assert slip.err == "duly: queue 'payment' is new. Did you mean 'payments'?\n"
    assert app.queue("payment").stats().ready == 3


def test_an_id_that_is_not_a_dead_letter_is_reported(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    failed = shell.run("dead", "redrive", "payments", "--id", letters[0], "--id", "nothing")

    assert failed.status == 1
    assert "1 of 2 redriven: the others are not dead letters of payments" in failed.err
    assert app.queue("payments").stats().dead == 2


def test_purge_deletes_only_dead_letters(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    app.queue("payments").send("live")

    refused = shell.run("dead", "purge", "payments")
    done = shell.ok("dead", "purge", "payments", "--yes", "--json").json

    assert refused.status == 2
    assert "Purge 3 dead message(s) of payments permanently?" in refused.err
    assert done == {"queue": "payments", "state": "dead", "purged": 3}
    assert app.queue("payments").stats().live == 1


def test_ls_shows_the_newest_first_on_request(shell: Shell, letters: list[str]) -> None:
    found = shell.ok("dead", "ls", "payments", "--newest", "--json").json["messages"]
    some = shell.run("dead", "ls", "payments", "--newest", "--limit", "1", "--error", "Timeout").lines

    assert [each["id"] for each in found] == letters[::-1]
    assert some[1].split()[0] == letters[2]


def test_rm_removes_matching_dead_letters(shell: Shell, app: duly.Duly, letters: list[str]) -> None:
    chosen = ("dead", "rm", "payments", "--error", "Timeout")
    unsaid = shell.run("dead", "rm", "payments", "--yes")
    would = shell.ok(*chosen, "--dry-run", "--json").json
    unasked = shell.run(*chosen)
    before = app.queue("payments").stats().dead
    done = shell.ok(*chosen, "--yes").out
    one = shell.ok("dead", "rm", "payments", "--id", letters[1], "--yes", "--json").json

    assert (unsaid.status, "rm needs a filter" in unsaid.err) == (2, True)
    assert would == {"queue": "payments", "dry_run": True, "removed": 2}
    assert (unasked.status, before) == (2, 3)
    assert done == "2 removed from payments\n"
    assert one["removed"] == 1
    stats = app.queue("payments").stats()
    assert (stats.dead, stats.purged) == (0, 3)
    assert app.queue("payments").audit().ok
