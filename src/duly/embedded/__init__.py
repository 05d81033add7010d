"""A real Valkey started for you, its data on disk, shared by processes.

Here: finding the binary, starting, sharing, restarting and stopping the server.
Not here: anything that talks about queues, or a Redis client: this package uses
the standard library only, so that the keeper process stays small.
"""

from duly.embedded.home import default_directory, has_server
from duly.embedded.server import EmbeddedServer, open_server

__all__ = ["EmbeddedServer", "default_directory", "has_server", "open_server"]
