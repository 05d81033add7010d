"""A real Valkey for tests: started in a directory, emptied between tests, stopped at the end."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import redis

from duly._sync.app import Duly
from duly.embedded import control, open_server

_SETTINGS: Final = "appendfsync always\n"
"""So that sends with durable="fsync" can be tested: less is not believed."""


class TestServer:
    """An embedded server that runs while this is open. It also ends with this process, however that ends."""

    __test__ = False  # pytest takes what begins with Test for tests

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700)
        (directory / "duly.conf").write_text(_SETTINGS)
        self._share = open_server(directory)
        self.url: str = f"embedded://{quote(str(directory))}"

    def flush(self) -> None:
        """Remove all that is on the server."""
        with redis.Redis(unix_socket_path=self._share.socket_path) as client:
            client.flushall()

    def stop(self) -> None:
        """Stop the server, also when apps that nobody closed still use it."""
        self._share.release()
        control.stop(self._directory, force=True)


class ServerApp(Duly):
    """An app that says where its server is."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.url = url
        """For other apps: `duly.Duly(app.url)`, or DULY_URL of another process."""
