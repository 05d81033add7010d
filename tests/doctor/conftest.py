"""Every kind of server is examined: they report different fields."""

from tests.conftest import each_kind
from tests.matrix import SCRIPT_SERVERS

kind = each_kind(SCRIPT_SERVERS)
