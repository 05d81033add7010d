"""Bytes in pieces: a large body is sent as it was encoded, without a copy."""

from typing import Final

LARGE_PIECE: Final = 65_536
"""Bytes from which a copy takes longer than one more write. MessagePack needs four bytes for such a length."""


class Pieces:
    """The bytes of several pieces, one after another: at least LARGE_PIECE."""

    __slots__ = ("_size", "pieces")

    def __init__(self, *pieces: bytes) -> None:
        self.pieces: Final = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)
