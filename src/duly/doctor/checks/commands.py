"""What the server can be asked to do."""

from typing import Final

from duly.acl.roles import ROLES
from duly.doctor.acting import needed_by
from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding
from duly.doctor.subject import Subject
from duly.doctor.wording import listed

COMMANDS: Final = Subject(
    "commands", "A script that runs a command which the server does not have fails, and with it every call of its kind."
)

_WORK: Final = ("producer", "consumer")


def commands(facts: Facts) -> Finding:
    """Look whether the server has every command that scripts and clients use."""
    absent = facts.absent
    if isinstance(absent, Missing):
        return COMMANDS.unknown(facts, absent)
    if not absent:
        return COMMANDS.ok("all that scripts use are there")
    unable = [name for name, role in ROLES.items() if needed_by(role) & absent]
    hidden = listed([f"rename-command {name}" for name in sorted(absent)])
    tell = COMMANDS.bad if any(name in unable for name in _WORK) else COMMANDS.warn
    return tell(
        f"the server does not have {listed(sorted(absent))}, needed by {', '.join(unable)}",
        f"# take {hidden} out of the server's configuration file, and start it again;\n"
        "# where a provider hides commands, use another server",
    )
