"""Two versions of Duly on one server, each in its own process. The test decides which of them makes a call."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

from tests.client.place import ServerPlace
from tests.servers import dying_with_parent
from tests.waiting import PATIENCE

_PEER: Final = Path(__file__).with_name("peer.py")
_OF_USERS: Final = ("body", "headers", "result")
"""Fields whose contents a user has chosen: there nothing may be missing."""


class Refused(Exception):
    """A peer raised an error: the message has its type and text."""


def environment_of(source: Path) -> dict[str, str]:
    """Return the environment in which a process imports this version of Duly."""
    return {**os.environ, "PYTHONPATH": str(source)}


class Peer:
    """One version in a process. `run` evaluates an expression there, with the names of `peer.py`."""

    def __init__(self, name: str, source: Path, url: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            dying_with_parent([sys.executable, "-P", str(_PEER), url]),
            env=environment_of(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            package = Path(self.run("duly.__file__")).parent
            assert package == source / "duly", f"{name} is to run {source}, and runs {package}"
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return self.name

    def run(self, expression: str, **given: Any) -> Any:
        """Have the peer evaluate an expression, and return the result."""
        self.begin(expression, **given)
        return self.answer()

    def begin(self, expression: str, **given: Any) -> None:
        """Have the peer evaluate an expression while the test goes on. `answer` must follow."""
        assert self._process.stdin is not None
        line = json.dumps({"run": expression, "given": given})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the result of the expression that was begun."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, f"{self.name} has not answered for {PATIENCE:g} s"
        line = self._process.stdout.readline()
        assert line, f"{self.name} has ended with status {self._process.wait(PATIENCE)}"
        found = json.loads(line)
        if "error" in found:
            raise Refused(f"{self.name}: {found['error']}")
        return found["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Pair:
    """The previous version and this one, on one server whose clock the test moves."""

    def __init__(self, place: ServerPlace, previous: Path, current: Path) -> None:
        self.place = place
        self.old = Peer("the previous version", previous, place.url)
        self.new = Peer("this version", current, place.url)

    def open(self, kind: str, name: str, attempts: int = 3) -> None:
        """Have both use the same queue or group."""
        for peer in (self.old, self.new):
            peer.run("open_box(kind, name, attempts)", kind=kind, name=name, attempts=attempts)

    def agree(self) -> dict[str, Any]:
        """Fail unless both see the same, and neither finds a fault. Give what they see."""
        old, new = self.old.run("look()"), self.new.run("look()")
        for aspect in old:
            assert (aspect, known(old[aspect], new[aspect])) == (aspect, known(new[aspect], old[aspect]))
        audits = {aspect: found for aspect, found in old.items() if aspect.endswith("audit")}
        assert all(found == [] for found in audits.values()), audits
        return dict(new)

    def own_keys(self, stored: str) -> list[str]:
        """Name the keys of a queue, or with @ of a topic, that do not belong to a connection.

        The previous version does not delete a history, which expires.
        """
        fading = [key for key, left_ms in self.place.keys(stored).items() if key.endswith("history") and left_ms > 0]
        return [key for key in self.place.keys(stored) if "call:" not in key and key not in fading]

    def other_than(self, peer: Peer) -> Peer:
        return self.new if peer is self.old else self.old

    def close(self) -> None:
        self.old.close()
        self.new.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def known(seen: Any, elsewhere: Any) -> Any:
    """Leave out the fields that only one version has: a later one may show more."""
    if isinstance(seen, dict) and isinstance(elsewhere, dict):
        shared = [name for name in seen if name in elsewhere]
        return {name: seen[name] if name in _OF_USERS else known(seen[name], elsewhere[name]) for name in shared}
    if isinstance(seen, list) and isinstance(elsewhere, list) and len(seen) == len(elsewhere):
        return [known(*pair) for pair in zip(seen, elsewhere, strict=True)]
    return seen
