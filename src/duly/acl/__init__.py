"""The ACL rules that a user of the server needs for a role, derived from the scripts."""

from duly.acl.grants import PASSWORD, every_command, rules, setuser
from duly.acl.roles import ROLES, Role
from duly.acl.servers import Knowledge, ask, known_of

__all__ = ["PASSWORD", "ROLES", "Knowledge", "Role", "ask", "every_command", "known_of", "rules", "setuser"]
