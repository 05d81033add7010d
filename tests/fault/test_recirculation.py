"""A hundred items go round and round, under workers that are killed: always a hundred, and never two of one at once.

`make soak` lets it go on for an hour, and adds its figures to `benchmarks/soaks/recirculation.json`.
DULY_RECIRCULATION_SECONDS sets how long it goes on, and DULY_SOAK_FILE names the file.
"""

import itertools
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from tests.conftest import StartedServer
from tests.fault.recorded import assert_accounts
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, module_of

ITEMS: Final = 100
WORKERS: Final = 8
SECONDS: Final = float(os.environ.get("DULY_RECIRCULATION_SECONDS", "8"))
STATES: Final = ("ready", "delayed", "leased", "dead")
LEASE: Final = 4.0

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(SECONDS + 240)]

# Half of the items repeat by their handler, half by the option of their send.
HANDLER: Final = """
    import random

    @orders.handler(concurrency=10)
    async def on_item(body, d):
        note("begin", id=d.id, fence=d.fence, cycles=d.cycles)
        await asyncio.sleep(random.uniform(0, 0.1))
        note("end", id=d.id, fence=d.fence)
        if body["by_hand"]:
            return duly.Recycle(random.uniform(0, 0.2))
"""


def ids_in_all_states(queue: duly.Queue) -> list[str]:
    """Name every item, as often as it is met, of an unused queue.

    Each state is a separate call, and delayed messages become ready between two of them:
    it would be met in neither. Hence nothing may be on its way when the first call is made.
    """
    wait_until(lambda: queue.stats().delayed == 0)
    return [message.id for state in STATES for message in queue.list(state, limit=1000)]


def overlaps(notes: Sequence[dict[str, Any]], killed: Mapping[int, Sequence[float]]) -> list[str]:
    """Find deliveries that began while another of the same item was being handled.

    A handler that was killed did nothing from then on; one that was not has recorded its end.
    The system uses process ids again within an hour, so a process ended at the first kill after it began.
    """
    ends = {(note["id"], note["fence"]): note["at"] for note in notes if note["what"] == "end"}
    begins = defaultdict(list)
    for note in notes:
        if note["what"] == "begin":
            begins[note["id"]].append(note)
    found = []
    for id_, those in begins.items():
        those.sort(key=lambda note: note["fence"])
        for before, after in itertools.pairwise(those):
            kill = next((at for at in killed.get(before["pid"], ()) if at >= before["at"]), None)
            ended = ends.get((id_, before["fence"]), kill)
            if before["fence"] >= after["fence"] or ended is None or after["at"] < ended:
                found.append(f"{before} and {after}, which ended {ended}")
    return found


def keep_figures(server: str, seed: int, stats: duly.Stats, *, kills: int, handled: int) -> None:
    """Add the figures of a run to the file that DULY_SOAK_FILE names, if it does."""
    if not (name := os.environ.get("DULY_SOAK_FILE")):
        return
    path = Path(name)
    runs = json.loads(path.read_text()) if path.exists() else []
    figures: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "server": server,
        "seconds": SECONDS,
        "items": ITEMS,
        "workers": WORKERS,
        "seed": seed,
        "kills": kills,
        "handlers_begun": handled,
        "items_at_the_end": stats.live,
        "handled_twice_at_once": 0,
    }
    for counter in ("delivered", "recycled", "crashed", "released", "dead"):
        figures[counter] = getattr(stats, counter)
    path.write_text(json.dumps([*runs, figures], indent=1) + "\n")


def test_an_overlap_is_found() -> None:
    first = {"what": "begin", "id": "a", "fence": 1, "pid": 7, "at": 1.0}
    second = {"what": "begin", "id": "a", "fence": 2, "pid": 8, "at": 2.0}
    ended = {"what": "end", "id": "a", "fence": 1, "pid": 7, "at": 1.5}

    assert overlaps([second, ended, first], {}) == []
    assert overlaps([first, second], {7: [1.5]}) == []
    assert overlaps([first, second], {7: [0.5, 1.5, 9.0]}) == []
    assert overlaps([first, second], {}) != []
    assert overlaps([first, second], {7: [0.5]}) != []
    assert overlaps([first, second], {7: [2.5]}) != []
    assert overlaps([first, second, {**ended, "at": 2.5}], {}) != []
    assert overlaps([first, {**second, "fence": 1}, ended], {}) != []


def test_a_hundred_items_stay_a_hundred(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    url, seed = server("valkey").url, random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    source = module_of(queue_name, f"lease={LEASE}, crash_limit=1000", HANDLER)
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        again = duly.Repeat(first=0.1)
        sent = queue.send_many(
            [duly.Send({"by_hand": n % 2 == 0}, delay=0, repeat=None if n % 2 == 0 else again) for n in range(ITEMS)]
        )

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source))

        workers, killed = [start() for _ in range(WORKERS)], defaultdict[int, list[float]](list)
        wait_until(lambda: "worker.started" in workers[-1].log())
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            victim = workers.pop(chance.randrange(WORKERS)).wait_for_start()
            time.sleep(chance.uniform(0, 0.5))
            victim.kill9()
            killed[victim.pid].append(time.monotonic())
            workers.append(start())
            stats = queue.stats()
            assert stats.live + stats.dead == ITEMS, stats

        for worker in workers:
            assert worker.wait_for_start().stop() == 0, worker.log()
        stats = assert_accounts(queue, sent=ITEMS, dead=0, acked=0, cancelled=0)
        assert stats.ready + stats.delayed + stats.leased == ITEMS
        assert sorted(ids_in_all_states(queue)) == sorted(sent)
        notes = workers[0].notes()
        assert overlaps(notes, killed) == []
        begun = [note for note in notes if note["what"] == "begin"]
        assert {note["id"] for note in begun} == set(sent)
        assert stats.crashed >= 1, "no process that held a message was killed"
        assert stats.recycled > 10 * ITEMS
        # Every delivery was repeated or lost with its process; a lost one is still leased, or was counted.
        assert stats.delivered == stats.recycled + stats.released + stats.crashed + stats.leased
        keep_figures("valkey", seed, stats, kills=sum(map(len, killed.values())), handled=len(begun))
