"""The instructions of a supervising parent for its children, as they are written on the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from duly.errors import UsageError
from duly.worker.logs import LogFormat
from duly.worker.worker_options import WorkerOptions


@dataclass(frozen=True)
class Assignment:
    """Which app to serve, and how. It holds no secrets: every user of the machine can read command lines."""

    target: str
    options: WorkerOptions
    log_format: LogFormat = "text"
    log_level: str = "info"
    vitals: str = ""
    """The directory in which children show their state to the parent. Empty: they do not."""

    def to_json(self) -> str:
        """Encode it for the command line."""
        options = json.loads(self.options.to_json())
        log = [self.log_format, self.log_level]
        return json.dumps({"target": self.target, "options": options, "log": log, "vitals": self.vitals})

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """Decode the text of `to_json`."""
        try:
            fields: Any = json.loads(text)
            log_format, log_level = fields["log"]
            options = WorkerOptions.from_json(json.dumps(fields["options"]))
            return cls(fields["target"], options, log_format, log_level, fields["vitals"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"these are not the arguments of a child of `duly worker`: {text[:200]!r}") from error
