"""`duly call`: a worker calls a task of an app, with arguments that were checked before."""

import pytest

import duly
from tests.cli.shell import Done, Shell

MODULE = """
import os
import duly

app = duly.Duly(namespace=os.environ["SPACE"])
kept = app.queue("kept", done=duly.Keep(count=10))
in_memory = duly.Duly("memory://")


@app.task(queue="mails")
def welcome(user: int, d: duly.Delivery, lang: str = "en") -> None: ...


@app.task(queue=kept, name="sizes.double")
def double(size: int) -> int:
    return 2 * size


@app.task(queue="mails", name="twice")
def twice_in_mails() -> None: ...


@app.task(queue=kept, name="twice")
def twice_in_kept() -> None: ...


@in_memory.task
def lost() -> None: ...
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    (shell.place / "shop.py").write_text(MODULE)
    return shell


def call(shop: Shell, *words: str) -> Done:
    return shop.run_bare("call", *words, SPACE=shop.namespace, PYTHONDONTWRITEBYTECODE="1")


@pytest.mark.parametrize(
    "words",
    [
        ("shop:app.welcome", "42", "lang=zh"),
        ("shop:welcome", "user=42", "lang=zh"),
        ("welcome", "42", 'lang="zh"', "--app", "shop:app"),
    ],
    ids=["by the app", "by the function", "by its name"],
)
def test_a_task_is_sent_with_its_arguments(shop: Shell, app: duly.Duly, words: tuple[str, ...]) -> None:
    done = call(shop, *words, "--delay", "1h")

    assert (done.status, done.err) == (0, "")
    (message,) = app.queue("mails").list("delayed")
    assert done.out.strip() == message.id
    body = message.body
    by_place = {"user": body["args"][0]} if body.get("args") else {}
    assert body["task"] == "welcome"
    assert {**by_place, **body["kwargs"]} == {"user": 42, "lang": "zh"}


def test_wait_prints_the_result(shop: Shell, app: duly.Duly) -> None:
    worker = shop.start_worker("shop:app", SPACE=shop.namespace)
    try:
        done = call(shop, "shop:app.sizes.double", "21", "--wait", "60s", "--json")
    finally:
        worker.terminate()
        worker.communicate(timeout=60)

    assert done.status == 0, done.err
    assert done.json["result"] == 42
    assert f"{done.json['id']} is stored in kept" in done.err


def test_a_missing_result_is_a_failure_that_names_the_message(shop: Shell, app: duly.Duly) -> None:
    done = call(shop, "shop:double", "21", "--wait", "10ms")

    assert (done.status, done.out) == (1, "")
    (message,) = app.queue("kept").list("ready")
    assert f"{message.id} is stored in kept" in done.err
    assert "is not finished after" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("shop:app.welcome",), "task 'welcome': it lacks 'user'"),
        (("shop:app.welcome", "x"), "task 'welcome': argument 'user'"),
        (("shop:app.welcome", "1", "2", "3"), "it takes 2 positional arguments, not 3"),
        (("shop:app.welcome", "1", "land=zh"), "it has no parameter 'land'"),
        (("shop:app.welcome", "1", "lang=a", "lang=b"), "lang= is given twice"),
        (("shop:app.welcome", "[1"), "the argument '[1' looks like JSON but is not"),
        (("shop:app.welcom", "1"), "there is no task 'welcom'. Did you mean 'welcome'?"),
        (("shop:app", "1"), "shop:app is an app: name one of its tasks. It has welcome, twice, sizes.double, twice"),
        (("shop:kept", "1"), "shop:kept is of type Queue, not a task"),
        (("welcome", "1"), "'welcome' names no app: write it as shop:app.welcome, or give --app shop:app"),
        (("shop:app.twice",), "there is a task 'twice' on queue 'mails' and 'kept': name the function"),
        (("shop:lost",), "the app is on memory://"),
        (("shop:welcome", "1", "--wait", "1s"), "--wait: queue 'mails' keeps no results"),
        (("shop:welcome", "1", "--delay", "1s", "--at", "1796000000"), "--delay and --at exclude each other"),
        (("shop:welcome", "1", "--url", "redis://x"), "the server is the app's"),
    ],
)
def test_misuse_is_explained_and_nothing_is_sent(
    shop: Shell, app: duly.Duly, words: tuple[str, ...], told: str
) -> None:
    done = call(shop, *words)

    assert (done.status, done.out) == (2, "")
    assert told in done.err
    assert app.queues() == []
