"""On which servers and engines a run tests what. tests/README.md has the reasons.

`DULY_TEST_MATRIX` is one of:
- `quick`: scripts on Valkey, everything above them in memory.
- `usual`: scripts on every server, everything above them in memory and on Valkey, the sync client on Valkey.
- `whole`: everything on every server, and the client as the user of every ACL role.
"""

import os
from typing import Final, Literal, get_args

from tests.binaries import KINDS, Kind

_LEVELS: Final = ("quick", "usual", "whole")
_LEVEL: Final = os.environ.get("DULY_TEST_MATRIX", "usual")
if _LEVEL not in _LEVELS:
    raise RuntimeError(f"DULY_TEST_MATRIX is {_LEVEL!r}: it is one of {', '.join(_LEVELS)}")

IS_QUICK: Final = _LEVEL == "quick"
IS_WHOLE: Final = _LEVEL == "whole"

SCRIPT_SERVERS: Final[tuple[Kind, ...]] = ("valkey",) if IS_QUICK else KINDS
"""For tests of the scripts, of the audit, of permissions and of `doctor`: there the server makes the difference."""

SERVERS: Final[tuple[Kind, ...]] = KINDS if IS_WHOLE else ("valkey",)
"""For tests above the scripts that start a server."""

ENGINES: Final[tuple[str, ...]] = ("memory",) if IS_QUICK else ("memory", *SERVERS)
"""For tests above the scripts that take any engine."""

Rig = Literal["sentinel", "cluster"]
RIGS: Final[tuple[Rig, ...]] = () if IS_QUICK else get_args(Rig)
"""Several servers that clients use as one, for tests of the client. They run Valkey."""
