"""Text each new user two minutes after they sign up, and never twice.

The gateway takes ten messages per second, and is down for a while. The clock is virtual, so no time passes.
"""

import logging
from itertools import pairwise

import duly
from duly.testing import clock, work_off

MINUTE = 60
app = duly.Duly("memory://")  # the clock of a real server cannot be moved; a service uses duly.Duly()
messages = app.queue("example-sms", rate="10/s", retry=duly.Retry(delays=[10, 60, 300]))
texted: list[tuple[str, float]] = []
gateway = {"is_up": True}


def sign_up(phone: str) -> str:
    """Store the user, and send a welcome message: one, even if the user presses the button twice."""
    return messages.send({"phone": phone, "text": "Welcome!"}, delay=2 * MINUTE, dedup=phone, dedup_for=10 * MINUTE)


@messages.handler
def text(message: dict[str, str]) -> None:
    if not gateway["is_up"]:
        raise ConnectionError("the gateway does not answer")  # retried after 10 s, then 1 min, then 5 min
    texted.append((message["phone"], clock.now_us() / 1_000_000))


def main() -> None:
    clock.freeze()
    start = clock.now_us() / 1_000_000
    phones = [f"138-{n:04}" for n in range(50)]
    for phone in phones:
        sign_up(phone)
        sign_up(phone)  # the second press of the button
    print(f"{len(phones)} users, {messages.stats().live} messages wait")

    assert work_off(app, advance=2 * MINUTE - 1) == []  # not a second early
    gateway["is_up"] = False
    failed = work_off(app, advance=3)
    gateway["is_up"] = True
    assert {each.outcome for each in failed} == {"retry"}
    print(f"{len(failed)} tries failed while the gateway was down")

    work_off(app, advance=10 * MINUTE)
    seconds = [at - start for _, at in texted]
    print(f"{len(texted)} texted, from {min(seconds):.1f} s to {max(seconds):.1f} s after they signed up")
    assert sorted(phone for phone, _ in texted) == phones  # each once
    assert min(seconds) >= 2 * MINUTE
    assert min(later - sooner for sooner, later in pairwise(seconds)) > 0.099  # ten per second, evenly
    assert messages.audit()


if __name__ == "__main__":
    logging.getLogger("duly.worker").setLevel(logging.ERROR)  # failures are expected here
    main()
    clock.reset()
    app.close()
