"""A real Valkey started for you, its data on disk, shared by processes.

Here: finding the binary, starting, sharing, restarting and stopping the server.
Not here: anything that talks about queues, or a Redis client: this package uses
the standard library only, so that the keeper process stays small.
"""

from duly.embedded.handle import EmbeddedServer, Halted, explain_halt, is_halted, open_server
from duly.embedded.home import default_directory, has_server

__all__ = ["EmbeddedServer", "Halted", "default_directory", "explain_halt", "has_server", "is_halted", "open_server"]
