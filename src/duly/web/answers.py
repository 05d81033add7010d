"""How far an answer has come: there is no second one once it has begun."""

from __future__ import annotations

from starlette.types import Message, Send


class Answer:
    """Sends an answer, and notes what was sent of it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_begun = False
        self.is_whole = False

    async def __call__(self, message: Message) -> None:
        """Send a part."""
        self.is_begun = True
        await self._send(message)
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
