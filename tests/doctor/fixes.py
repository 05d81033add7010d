"""Runs the fix of a finding, like an operator in redis-cli."""

import re
from typing import Any

import redis

from duly.doctor import Finding

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


def words_of(line: str) -> list[bytes]:
    """Split a line as redis-cli does."""
    found = _WORD.findall(line)
    return [
        quoted.encode().decode("unicode_escape").encode("latin-1") if quoted else plain.encode()
        for quoted, plain in found
    ]


def run(finding: Finding, url: str) -> list[Any]:
    """Run the server commands of a fix, as the user of the address."""
    assert finding.commands, finding
    with redis.Redis.from_url(url) as client:
        return [client.execute_command(*words_of(line)) for line in finding.commands]
