"""Random calls of two versions on one queue: the bytes of errors and results are those that are stored."""

import random
from typing import Any, Final

import pytest

from tests.versions.pair import Pair

STEPS: Final = 150
BUDGETS: Final = ("bytes=2500", "bytes=4000", "count=6", "age=300")
CALLS: Final = (
    "box.send_many([duly.Send(text, id=f'id-{n}', key=['k', None][n % 2]) for n in numbers])",
    "box.send_many([text] * 3)",
    "[delivery.ack(result=text) for delivery in box.receive(limit=3, wait=0)]",
    "[delivery.reject(text) for delivery in box.receive(limit=3, wait=0)]",
    "[delivery.retry(0, error=text) for delivery in box.receive(limit=3, wait=0)]",
    "[delivery.commit(send=[(box, text)], result=text) for delivery in box.receive(limit=2, wait=0)]",
    "box.receive(limit=2, wait=0)",
    "box.redrive(limit=2)",
    "box.redrive(to=other, limit=1)",
    "[letter.reject(text) for letter in other.receive(limit=3, wait=0)] + [other.redrive(to=box)]",
    "[box.cancel(letter.id) for letter in box.list('dead', limit=2)]",
    "box.purge('done')",
    "box.audit(repair=True)",
)
SMALL, LARGE = ".", "." * 900


def stored_in(client: Any, queue: str) -> list[int]:
    """Return the bytes of the rows of dead and of done messages."""
    dead, done, why = (f"duly:{{{queue}}}:{name}" for name in ("dead", "done", "why"))
    return [sum(client.hstrlen(why, id_) for id_ in client.zrange(place, 0, -1)) for place in (dead, done)]


@pytest.mark.parametrize("seed", range(3))
def test_the_bytes_of_rows_are_exact_after_calls_of_both_versions(pair: Pair, queue_name: str, seed: int) -> None:
    """new-11."""
    chance, client = random.Random(seed), pair.place.connect()
    seen: set[str] = set()
    names = {"name": queue_name, "elsewhere": f"{queue_name}-other"}
    for _ in range(STEPS):
        pair.place.advance(chance.choice([0, 0, 0, 30]))
        keep, call = chance.choice(BUDGETS), chance.choice(CALLS)
        options = (
            f"lease=60, crash_limit=2, retry=duly.Retry(attempts=2), dead=duly.Keep({keep}), done=duly.Keep({keep})"
        )
        queues = f"for box in [app.queue(name, {options})] for other in [app.queue(elsewhere)]"
        numbers = [chance.randrange(30) for _ in range(4)]
        peer = chance.choice([pair.old, pair.new])
        peer.run(f"len([({call}) {queues}])", **names, text=chance.choice([SMALL, LARGE]), numbers=numbers)
        for queue in names.values():
            stats = pair.new.run("dataclasses.asdict(app.queue(queue).stats())", queue=queue)
            counted = [stats["dead_why_bytes"], stats["done_why_bytes"]]
            assert counted == stored_in(client, queue), (peer, call)
            seen |= {name for name in ("dead", "done", "trimmed", "done_trimmed", "redriven", "moved") if stats[name]}
    assert seen == {"dead", "done", "trimmed", "done_trimmed", "redriven", "moved"}
    client.close()
