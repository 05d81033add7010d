"""A real Valkey server for tests: started in a directory, emptied between tests, stopped at the end."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from duly._sync.app import Duly
from duly._sync.wire import Wire
from duly.embedded import control, open_server

_SETTINGS: Final = "appendfsync always\n"
"""Sends with durable="fsync" need this setting."""


class TestServer:
    """An embedded server that runs until `stop`, or until this process ends."""

    __test__ = False  # pytest would collect a class whose name begins with Test

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700)
        (directory / "duly.conf").write_text(_SETTINGS)
        self._share = open_server(directory)
        self.url: str = f"embedded://{quote(str(directory))}"

    def flush(self) -> None:
        """Remove all keys of the server."""
        wire = Wire("unix", {"path": str(self._share.socket_path)})
        wire.open()
        try:
            wire.ask([b"FLUSHALL"])
        finally:
            wire.close()

    def stop(self) -> None:
        """Stop the server, even if apps that were not closed still use it."""
        self._share.release()
        control.stop(self._directory, force=True)


class ServerApp(Duly):
    """An app that knows the URL of its server."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.url = url
        """For other apps: `duly.Duly(app.url)`, or DULY_URL of another process."""
