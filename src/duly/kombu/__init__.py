"""A transport for kombu, and so a broker for Celery: `broker_url="duly+redis://localhost:6379/0"`.

The address after `duly+` is that of `duly.Duly`: `duly+rediss://`, `duly+redis+sentinel://`, `duly+redis+cluster://`
and `duly+embedded:///directory` work as well. It needs the extra `celery`: `pip install 'duly[celery]'`. An entry point
registers it with Celery. `transport="duly.kombu:Transport"` names it for an address without `duly+`.

A queue of kombu is a queue of Duly with the same name, except for characters that Duly does not allow. A message keeps
its lease while the worker lives, and a time in its `eta` header is kept by the server. `TransportOptions` documents
the options of `broker_transport_options`.
"""

import duly_kombu_alias  # noqa: F401 - the names of the transport, also without the entry point
from duly.kombu.settings import TransportOptions
from duly.kombu.transport import Transport

__all__ = ["Transport", "TransportOptions"]
