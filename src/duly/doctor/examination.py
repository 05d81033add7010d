"""The examination itself: reach the server, collect the facts, have every check look at them."""

from redis.exceptions import RedisError

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.doctor import connecting
from duly.doctor.asking import reached
from duly.doctor.checks import CHECKS
from duly.doctor.collecting import collect
from duly.doctor.report import Report
from duly.errors import DulyError


def examine(app: Duly | AsyncDuly) -> Report:
    """Examine the server and the namespace of an app, also a server that it would refuse. Blocks, for either colour.

    Takes a moment: some hundred short questions and a bounded walk through the keys of the namespace. Changes
    nothing. A server that cannot be reached is one finding, not an error.
    """
    address = app._address
    if address.kind == "memory":
        return Report(address.shown, (connecting.nothing_to_examine(address),))
    try:
        with reached(address) as wire:
            facts = collect(wire, address, app.namespace)
    except (RedisError, OSError, DulyError) as error:
        return Report(address.shown, (connecting.unreachable(address, error),))
    return Report(address.shown, (connecting.reachable(address), *(check(facts) for check in CHECKS.values())))
