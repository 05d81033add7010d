"""Which server it is, and of which version."""

import re
from collections.abc import Mapping
from typing import Literal

Product = Literal["Redis", "Valkey"]
Version = tuple[int, int, int]


def product_of(info: Mapping[str, str]) -> tuple[Product, str]:
    """Read it from INFO. Valkey tells the version of Redis that it is like, too."""
    valkey = info.get("valkey_version")
    return ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "0"))


def read_version(text: str) -> Version:
    """Read `7.0.15`; what is missing is 0."""
    numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch
