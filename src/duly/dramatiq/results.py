"""The backend of results: a key for each result, with an expiry time."""

import time
from typing import Any, Final

from dramatiq.encoder import Encoder
from dramatiq.results.backend import DEFAULT_TIMEOUT, Missing, ResultBackend
from dramatiq.results.errors import ResultMissing, ResultTimeout

import duly
from duly import _port
from duly.dramatiq.broker import translated_errors

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25


class DulyBackend(ResultBackend):
    """Stores results of Dramatiq on the server of an app, or of a URL as in `duly.Duly`.

    `namespace` is part of the key, so that several programs can share an app.
    """

    def __init__(
        self,
        server: str | duly.Duly | None = None,
        *,
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder)
        self._app = server if isinstance(server, duly.Duly) else duly.Duly(server)

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        """Return a result. With `block`, wait up to `timeout` milliseconds for it: 10 seconds by default.

        Raises ResultMissing, ResultTimeout, ResultFailure if the actor has failed, and ConnectionClosed.
        """
        give_up_at = time.monotonic() + (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        key, pause = self.build_message_key(message), _FIRST_PAUSE
        while (found := self._get(key)) is Missing:
            left = give_up_at - time.monotonic()
            if not block:
                raise ResultMissing(message)
            if left <= 0:
                raise ResultTimeout(message)
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        return self.unwrap_result(found)

    def _get(self, message_key: str) -> Any:
        with translated_errors():
            stored = _port.value_command(self._app, message_key, "GET")
        return Missing if stored is None else self.encoder.decode(stored)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        with translated_errors():
            _port.value_command(self._app, message_key, "SET", self.encoder.encode(result), "PX", max(ttl, 1))
