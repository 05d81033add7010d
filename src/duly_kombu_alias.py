"""Registers URLs like `duly+redis://` with kombu, which loads this module whenever it is imported.

kombu has no entry points for transports. It has some for serializers, and loads them in every program that imports it,
in programs like Flower as well. So this module adds the names of the transport, and is the entry point of a serializer.
It is outside of the package `duly`: a program that uses kombu without Duly does not import Duly.
"""

import contextlib
import json

TRANSPORT = "duly.kombu:Transport"
PLAIN = ("redis", "rediss", "valkey", "valkeys", "unix", "embedded")
"""Schemes of addresses of one server."""
LISTING = tuple(f"{plain}+{kind}" for plain in PLAIN[:4] for kind in ("sentinel", "cluster"))
"""Schemes of addresses that list several hosts."""

SERIALIZER = (json.dumps, json.loads, "application/x-duly-json", "utf-8")
"""JSON with another content type. Nothing uses it."""

with contextlib.suppress(ImportError):  # a version of kombu without these names has no transport of Duly
    from kombu.transport import TRANSPORT_ALIASES

    # After a fail-over, kombu needs the whole scheme of the next URL as a name.
    TRANSPORT_ALIASES.update(dict.fromkeys(("duly", *(f"duly+{rest}" for rest in PLAIN + LISTING)), TRANSPORT))
