"""A set of ids in the order of their scores. Ids of one score are ordered by their bytes."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Final

_AFTER_ALL: Final = b"\xff" * 2048  # no id is that long


class ScoredIds:
    """Ids, each with a score: a due time, a deadline, the end of a window."""

    __slots__ = ("_rows", "_scores")

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes]] = []
        self._scores: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._scores

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._rows)

    def put(self, id_: bytes, score: int) -> None:
        """Add an id, or change its score."""
        self.remove(id_)
        self._scores[id_] = score
        insort(self._rows, (score, id_))

    def remove(self, id_: bytes) -> bool:
        """Remove an id; return whether it was there."""
        score = self._scores.pop(id_, None)
        if score is None:
            return False
        del self._rows[bisect_left(self._rows, (score, id_))]
        return True

    def score(self, id_: bytes) -> int | None:
        """Return the score of an id."""
        return self._scores.get(id_)

    def first_score(self, above: int | None = None) -> int | None:
        """Return the lowest score, or the lowest above another score."""
        rank = 0 if above is None else self.count_up_to(above)
        return self._rows[rank][0] if rank < len(self._rows) else None

    def up_to(self, score: int, limit: int | None = None) -> list[tuple[int, bytes]]:
        """Return the first rows whose score is not higher."""
        return self._rows[: min(self.count_up_to(score), len(self) if limit is None else limit)]

    def above(self, score: int) -> list[tuple[int, bytes]]:
        """Return the rows whose score is higher."""
        return self._rows[self.count_up_to(score) :]

    def count_up_to(self, score: int) -> int:
        """Count the rows whose score is not higher."""
        return bisect_right(self._rows, (score, _AFTER_ALL))

    def row(self, rank: int) -> tuple[int, bytes] | None:
        """Return the row at a rank; None: there are fewer."""
        return self._rows[rank] if rank < len(self._rows) else None

    def score_at(self, rank: int) -> int:
        """Return the score of the row at a rank."""
        return self._rows[rank][0]

    def first(self, count: int) -> list[tuple[int, bytes]]:
        """Return the first rows."""
        return list(islice(self._rows, count))
