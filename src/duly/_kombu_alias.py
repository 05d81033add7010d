"""Registers URLs like `duly+redis://` with kombu. An entry point loads this module with kombu.

kombu has no entry points for transports. It has some for serializers, and loads them whenever it is imported, in
programs like Flower as well. So this module adds the names of the transport, and is the entry point of a serializer.
"""

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT = "duly.kombu:Transport"
PLAIN = ("redis", "rediss", "valkey", "valkeys", "unix", "embedded")
"""Schemes of addresses of one server."""
LISTING = tuple(f"{plain}+{kind}" for plain in PLAIN[:4] for kind in ("sentinel", "cluster"))
"""Schemes of addresses that list several hosts."""

# After a fail-over, kombu needs the whole scheme of the next URL as a name.
TRANSPORT_ALIASES.update(dict.fromkeys(("duly", *(f"duly+{rest}" for rest in PLAIN + LISTING)), TRANSPORT))

SERIALIZER = (dumps, loads, "application/x-duly-json", "utf-8")
"""JSON as kombu writes it, with another content type. Nothing uses it."""
