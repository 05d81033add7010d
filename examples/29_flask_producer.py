"""A Flask app that sends: an order is confirmed by mail at once, and its delivery is asked about after two days.

Requests only send; `duly worker shop:app` runs the handlers. Here a test client and the virtual clock replace
browsers, workers and the two days.
"""

from flask import Flask, Response, jsonify, request

import duly
from duly.testing import clock, work_off

DAY = 24 * 3600
app = duly.Duly("memory://")  # the clock of a real server cannot be moved; a shop uses duly.Duly()
mails = app.queue("example-flask-mails")
web = Flask(__name__)
mailed: list[str] = []


@mails.handler
def on_mail(mail: dict[str, str]) -> None:
    mailed.append(f"{mail['to']}: {mail['text']}")


@web.post("/orders")
def place_order() -> tuple[Response, int]:
    order = request.get_json()
    # One round trip for both. A browser that sends the request again within five minutes (`dedup_for`) gets the first
    # ids, and no second mail.
    confirmation, question = mails.send_many(
        [
            duly.Send({"to": order["user"], "text": "thank you"}, dedup=f"thanks-{order['id']}"),
            duly.Send({"to": order["user"], "text": "did it arrive?"}, delay=2 * DAY, dedup=f"asks-{order['id']}"),
        ]
    )
    return jsonify(confirmation=confirmation, question=question), 202


@web.delete("/questions/<id_>")
def do_not_ask(id_: str) -> tuple[Response, int]:
    return jsonify(cancelled=mails.cancel(id_)), 200


@web.errorhandler(duly.UsageError)
def on_bad_input(error: duly.UsageError) -> tuple[Response, int]:
    return jsonify(error=str(error)), 422


@web.errorhandler(duly.Unavailable)
def on_unavailable(error: duly.Unavailable) -> tuple[Response, int]:
    return jsonify(error=str(error)), 503


def main() -> None:
    browser = web.test_client()
    ann = browser.post("/orders", json={"id": 1, "user": "ann"}).get_json()
    assert browser.post("/orders", json={"id": 1, "user": "ann"}).get_json() == ann  # sent again: the same messages
    bob = browser.post("/orders", json={"id": 2, "user": "bob"}).get_json()

    work_off(app)
    print("at once:", mailed)
    assert mailed == ["ann: thank you", "bob: thank you"]

    assert browser.delete(f"/questions/{bob['question']}").get_json() == {"cancelled": True}
    work_off(app, advance=3 * DAY)
    print("after three days:", mailed[2:])
    assert mailed[2:] == ["ann: did it arrive?"]


if __name__ == "__main__":
    main()
    clock.reset()
    app.close()
