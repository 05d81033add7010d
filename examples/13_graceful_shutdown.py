"""SIGTERM while handlers run: running messages are finished, the others stay, and no attempt is spent.

When the grace period is over, handlers are cancelled and their messages released; the exit status is then 1.
"""

import asyncio
import os
import signal

import duly

app = duly.Duly(os.environ.get("DULY_URL", "memory://"))
exports = app.queue("example-exports")


@exports.handler(concurrency=2)
async def on_export(seconds: float, d: duly.AsyncDelivery) -> None:
    print(f"begun, takes {seconds} s")
    begun.append(d.id)
    if len(begun) == 2:
        os.kill(os.getpid(), signal.SIGTERM)  # as a service manager stops a worker
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:  # the grace period is over: free your resources
        print("cut off; lost:", d.lost)
        raise
    print("finished")


@app.on_stop
def on_stop() -> None:
    print("the last handler has ended: close what you have opened")


begun: list[str] = []
exports.send_many([0.5] * 5)
app.run(grace=10)  # returns: no handler was cancelled. The process would end with status 0

stats = exports.stats()
print(f"finished {stats.acked}, still waiting {stats.ready}")
assert (stats.acked, stats.ready) == (2, 3)
assert all(message.failures == message.crashes == 0 for message in exports.list("ready"))
exports.purge()

begun.clear()
exports.send_many([60, 60])
try:
    app.run(grace=0.3)
except SystemExit as end:  # not caught, it ends the process with this status
    print("exit status", end.code)

for message in exports.list("ready"):
    print("given back, failures", message.failures, "crashes", message.crashes, "releases", message.releases)
exports.delete()
app.close()
