"""A Valkey server that Duly starts, with data on disk, shared by processes.

This package finds the binary, and starts, shares, restarts and stops the server. It does not use queues or a Redis
client: with the standard library only, the keeper process stays small.
"""

from duly.embedded.handle import EmbeddedServer, Halted, explain_halt, is_halted, open_server
from duly.embedded.home import default_directory, has_server

__all__ = ["EmbeddedServer", "Halted", "default_directory", "explain_halt", "has_server", "is_halted", "open_server"]
