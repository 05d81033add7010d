"""What the connected user may do."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding
from duly.doctor.subject import Subject
from duly.doctor.wording import in_shell, listed

RIGHTS: Final = Subject(
    "rights",
    "A user with too few rights fails in the middle of its work; one with all of them can be misused for anything.",
)


def rights(facts: Facts) -> Finding:
    """Say which roles the user can play."""
    found = facts.rights
    if isinstance(found, Missing):
        rules = f"# give it the rules of a role:\nduly acl --role consumer --user {in_shell(facts.user)}"
        return RIGHTS.unknown(facts, found, "" if found.right else rules)
    able = [role for role, lacks in found.lacking.items() if not lacks]
    if able:
        return RIGHTS.ok(f"user {facts.user!r} can be {', '.join(able)}")
    role, lacks = min(found.lacking.items(), key=lambda each: len(each[1]))
    return RIGHTS.bad(
        f"user {facts.user!r} can play no role; nearest is {role}, without {listed(list(lacks))}",
        f"duly acl --role {role} --user {in_shell(facts.user)}",
    )
