"""What the clocks say."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding
from duly.doctor.subject import Subject
from duly.doctor.wording import in_shell, listed

CLOCK: Final = Subject("clock", "Due times are the server's: at= means what its clock says, not yours.")
QUEUE_CLOCKS: Final = Subject(
    "queue-clocks",
    "After the server's clock was set back, delays, back-offs and leases of a queue wait until it has caught up.",
)

# All in seconds.
SKEW: Final = 1.0
STEP: Final = 1.0
LONG_STEP: Final = 3600.0


def clock(facts: Facts) -> Finding:
    """Compare the server's clock with ours."""
    skew = facts.skew
    if isinstance(skew, Missing):
        return CLOCK.unknown(facts, skew)
    where = "ahead of" if skew.seconds > 0 else "behind"
    found = f"the server is {abs(skew.seconds):.3f} s {where} this machine, give or take {skew.give_or_take:.3f} s"
    if abs(skew.seconds) - skew.give_or_take <= SKEW:
        return CLOCK.ok(found)
    return CLOCK.warn(found, "# have both machines follow a time service: timedatectl set-ntp true")


def queue_clocks(facts: Facts) -> Finding:
    """Look whether the server's clock was set back under a queue."""
    keyspace = facts.keys_for(QUEUE_CLOCKS.name)
    if isinstance(keyspace, Missing):
        return QUEUE_CLOCKS.unknown(facts, keyspace)
    ahead = sorted((each for each in keyspace.clocks if each.ahead > STEP), key=lambda each: -each.ahead)
    if not ahead:
        return QUEUE_CLOCKS.ok("none is ahead of the server's clock")
    named = listed([f"{each.owner} by {each.ahead:.0f} s" for each in ahead])
    tell = QUEUE_CLOCKS.bad if ahead[0].ahead > LONG_STEP else QUEUE_CLOCKS.warn
    return tell(
        f"ahead of the server's clock: {named}",
        "# it ends by itself when the server's clock has caught up; until then what cannot wait is made due by\n"
        f"duly promote {in_shell(ahead[0].owner)} ID",
    )
