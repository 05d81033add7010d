"""Clients with a mistake, which the machine must find."""

from tests.model.callers import Caller, Made


class StreamPerConnection(Caller):
    """A client with a new stream on each connection: a call that it repeats there is not recognised."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name)
        self._process = name
        self._connections = 0
        self._numbers: dict[Made, tuple[bytes, int]] = {}
        """The calls of this connection."""

    def numbered(self, made: Made) -> tuple[bytes, int]:
        if made not in self._numbers:
            is_repeat = made in self.made
            self.sequence += is_repeat
            self._numbers[made] = (self.name, self.sequence)
        return self._numbers[made]

    def reconnect(self) -> None:
        self._connections += 1
        self.name = b"%s-%d" % (self._process, self._connections)
        self.sequence = 0
        self._numbers.clear()
