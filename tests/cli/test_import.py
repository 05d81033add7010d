"""`duly import` moves the messages of other queues."""

import json
from collections.abc import Iterator

import pytest
import redis

import duly
from tests.cli.conftest import Call
from tests.cli.shell import Shell
from tests.importing import foreign


@pytest.fixture
def old(shell: Shell) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(shell.url) as client:
        yield client


def test_a_list_is_moved_and_reported(call: Call, app: duly.Duly, old: redis.Redis, queue_name: str) -> None:
    foreign.fill_list(old, queue_name)

    dry = call("import", "list", queue_name, "--dry-run")
    done = call("import", "list", queue_name, "--to", queue_name, "--body", "text", "--pop", "left")

    assert dry.out == f"3 would be moved to {queue_name}: 3 list\n"
    assert done.out == f"3 moved to {queue_name}: 3 list\n"
    assert [each.body for each in app.queue(queue_name).list("ready")] == [
        '{"to": "bob"}',
        '{"to": "bob"}',
        '{"to": "ann"}',
    ]


def test_the_report_has_the_reason_of_messages_that_stay(call: Call, old: redis.Redis, queue_name: str) -> None:
    old.lpush(queue_name, "[1]", "not json")

    done = call("import", "list", queue_name)
    again = call("import", "list", queue_name, "--json")

    assert done.out == f"1 moved to {queue_name}: 1 list\n1 left there: not json: b'not json'\n"
    assert json.loads(again.out) == {
        "queue": queue_name,
        "dry_run": False,
        "moved": {},
        "resumed": 0,
        "left": {"not json: b'not json'": 1},
        "gone": {},
    }
    old.delete(queue_name)


def test_each_source_is_read_with_its_options(call: Call, shell: Shell, old: redis.Redis, queue_name: str) -> None:
    name = "q" + queue_name[-38:]
    there = shell.url
    for fill in (foreign.fill_delayqueue, foreign.fill_rmq, foreign.fill_rq):
        fill(old, name)
    foreign.fill_sorted_set(old, f"{name}.later")
    foreign.fill_redisson(old, f"{name}.java")
    foreign.fill_celery(old, name)

    moved = [
        call("import", "delayqueue", name, "--from", there, "--unfinished").out,
        call("import", "rmq", name, "--rejected").out,
        call("import", "rq", name, "--task", "shop.close=close", "--unfinished").out,
        call("import", "sorted-set", f"{name}.later", "--ms", "--dry-run").out,
        call("import", "redisson", f"{name}.java").out,
        call("import", "celery", "orders", "--prefix", f"{name}:", "--to", name, "--as-tasks", "--unfinished").out,
    ]

    assert [int(each.split()[0]) for each in moved] == [4, 5, 4, 3, 5, 4]


def test_the_report_counts_tasks_of_celery_with_an_eta_as_delayed(
    call: Call, app: duly.Duly, old: redis.Redis, queue_name: str
) -> None:
    foreign.fill_celery(old, queue_name)
    words = ("import", "celery", "orders", "--prefix", f"{queue_name}:", "--to", queue_name, "--as-tasks")

    dry = call(*words, "--dry-run")
    done = call(*words)

    left = "\n1 left there: a worker has it\n"
    assert dry.out == f"3 would be moved to {queue_name}: 2 ready, 1 delayed{left}"
    assert done.out == f"3 moved to {queue_name}: 2 ready, 1 delayed{left}"
    assert (app.queue(queue_name).stats().ready, app.queue(queue_name).stats().delayed) == (2, 1)


@pytest.mark.parametrize("words", [("list", "no-such-key"), ("rq", "no-such-queue"), ("celery", "no-such-queue")])
def test_a_source_that_has_nothing_is_an_error(call: Call, words: tuple[str, str]) -> None:
    done = call("import", *words, "--dry-run")

    assert done.status == 1
    assert "nothing was found in" in done.err
    assert words[1] in done.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("list", "x", "--body", "xml"), "--body must be json, text or bytes, not 'xml'"),
        (("list", "x", "--pop", "top"), "--pop must be right or left, not 'top'"),
        (("rq", "x", "--task", "close"), "--task must be OLD=NEW, like shop.close=close, not 'close'"),
    ],
)
def test_misuse_is_refused(call: Call, words: tuple[str, ...], error: str) -> None:
    done = call("import", *words)

    assert done.status == 2
    assert error in done.err
