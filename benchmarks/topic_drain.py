"""How many messages per second does one worker process handle for one group, compared with a queue?"""

from benchmarks.peers.parties import duly_party
from benchmarks.rig import Result, Rig, alternately, median
from benchmarks.worker_drain import Side

MESSAGES = 100_000


def measure(rig: Rig) -> list[Result]:
    """Drain a topic with one group and a queue in turn, with handlers that do nothing."""
    topic = Side(rig, duly_party(rig.url, messages=MESSAGES, group="bench"))
    queue = Side(rig, duly_party(rig.url, messages=MESSAGES))
    topic.rates, queue.rates = alternately(rig.rounds, topic.drain, queue.drain)
    rig.raw.flushall()
    result = topic.result(80_000)
    result.question = "drain, one worker, one group of a topic"
    result.beside["a queue, messages/s"] = round(median(queue.rates))
    return [result]
