"""`duly.celery.setup` sets safe defaults, and logs them."""

import logging
from unittest.mock import Mock

import pytest
from celery import Celery, signals

import duly
import duly.celery
from duly.celery._requests import KeptRequest
from duly.celery.settings import SAFE

BROKER = "duly+redis://localhost:1/0"


def test_safe_settings_are_set_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "duly.celery")
    app = Celery("shop", broker=BROKER)

    duly.celery.setup(app)

    assert {name: app.conf[name] for name in SAFE} == SAFE
    (line,) = [record.getMessage() for record in caplog.records if record.name == "duly.celery"]
    assert line.startswith("Celery app 'shop': set task_acks_late=True, task_reject_on_worker_lost=True")


def test_settings_that_no_log_shows_yet_are_logged_when_the_worker_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "duly.celery")
    app, other = Celery("shop", broker=BROKER), Celery("other", broker=BROKER)
    duly.celery.setup(app)
    assert app.conf.task_acks_late is True
    caplog.set_level(logging.INFO, "duly.celery")

    for each in (app, other):
        signals.worker_ready.send(Mock(app=each))

    (line,) = [record.getMessage() for record in caplog.records if record.name == "duly.celery"]
    assert line.startswith("Celery app 'shop': set task_acks_late=True")


def test_settings_of_the_user_stay() -> None:
    app = Celery("shop", broker=BROKER)
    app.conf.update(task_acks_late=False, worker_prefetch_multiplier=8)

    duly.celery.setup(app)

    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (False, 8)
    assert app.conf.task_reject_on_worker_lost is True


def test_settings_that_are_read_later_stay_as_well() -> None:
    class Settings:
        task_acks_late = False

    app = Celery("shop", broker=BROKER)
    duly.celery.setup(app)
    app.config_from_object(Settings)

    assert app.conf.task_acks_late is False
    assert app.conf.task_reject_on_worker_lost is True


def test_tasks_get_the_settings() -> None:
    app = Celery("shop", broker=BROKER)
    duly.celery.setup(app)

    @app.task
    def work() -> None: ...

    assert work.acks_late is True
    assert work.reject_on_worker_lost is True


def test_messages_of_failed_tasks_are_kept_on_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "duly.celery")
    app, other = Celery("shop", broker=BROKER), Celery("other", broker=BROKER)

    duly.celery.setup(app, keep_failed=True)
    duly.celery.setup(other)

    assert app.conf.task_acks_on_failure_or_timeout is False
    assert other.conf.task_acks_on_failure_or_timeout is True
    assert ["task_acks_on_failure_or_timeout=False" in line for line in caplog.messages] == [True, False]


def test_a_setting_of_the_user_for_failed_tasks_stays() -> None:
    app = Celery("shop", broker=BROKER)
    app.conf.task_acks_on_failure_or_timeout = True

    duly.celery.setup(app, keep_failed=True)

    assert app.conf.task_acks_on_failure_or_timeout is True


@pytest.mark.filterwarnings("ignore:Task name 'tests.celery.program")  # other tests load it more than once
def test_a_worker_that_keeps_failed_tasks_has_its_own_requests() -> None:
    class Chosen(KeptRequest):
        """A class of the user."""

    def work() -> None: ...

    app, other = Celery("shop", broker=BROKER), Celery("other", broker=BROKER)
    of_app, of_other = (each.task(name="work", shared=False)(work) for each in (app, other))
    chosen = app.task(name="chosen", shared=False, Request=Chosen)(work)
    duly.celery.setup(app, keep_failed=True)
    duly.celery.setup(other)

    for each in (app, other):
        signals.worker_init.send(Mock(app=each))

    assert of_app.Request == "duly.celery._requests:KeptRequest"
    assert of_other.Request == "celery.worker.request:Request"
    assert chosen.Request is Chosen


def test_repeating_it_changes_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = Celery("shop", broker=BROKER)
    duly.celery.setup(app)
    assert app.conf.task_acks_late is True
    caplog.clear()

    duly.celery.setup(app)

    assert not caplog.records


def test_another_broker_is_refused() -> None:
    tasks = duly.celery.setup(Celery("shop", broker="memory://"))

    with pytest.raises(duly.UsageError, match=r"the broker of Celery app 'shop' is not Duly"):
        tasks.dead()
