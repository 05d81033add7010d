"""beanstalkd by greenstalk: threads with one job each, deleted after the work. Delays are whole seconds."""

import math
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import greenstalk

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        parts = urlsplit(self.url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 11300)

    async def open(self) -> None:
        self.client = greenstalk.Client(self.address)

    def send(self, text: str) -> Any:
        self.client.put(text, ttr=self.options["ttr"])

    def send_at(self, text: str, due: float) -> Any:
        self.client.put(text, ttr=self.options["ttr"], delay=max(0, math.ceil(due - time.time())))

    def work(self) -> None:
        for _ in range(self.options["threads"]):
            threading.Thread(target=self._work, daemon=True).start()
        threading.Event().wait()

    def _work(self) -> None:
        client = greenstalk.Client(self.address)
        while True:
            job = client.reserve()
            self.handle(job.body)
            client.delete(job)
