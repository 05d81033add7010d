"""The thread that renews leases ends with its app, and does not come back."""

import threading
from typing import Any

import duly
from duly._core.keys import QueueKeys
from duly._renewal import Renewer


def renewers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "duly-renewer"}


class Delivery:
    id, fence, priority, is_settled, lost = "a", 1, 0, False, False


def test_a_renewer_that_was_stopped_starts_no_thread() -> None:
    others, delivery = renewers(), Delivery()
    renewer = Renewer(lambda _: [])
    renewer.add([delivery], QueueKeys("duly", "q"), 30, None)
    assert len(renewers() - others) == 1
    renewer.stop()
    assert renewers() <= others
    renewer.add([delivery], QueueKeys("duly", "q"), 30, None)
    assert renewers() <= others


def test_a_receive_that_ends_after_its_app_was_closed_leaves_no_thread() -> None:
    others = renewers()
    app = duly.Duly("memory://")
    queue: Any = app.queue("q")
    queue.send("x")
    claimed = queue._link.run_now(queue._claim(limit=1, lease=30, then="leave"))
    app.close()
    (delivery,) = queue._deliveries(claimed, 30, renew=True)
    assert delivery.id
    assert renewers() <= others
