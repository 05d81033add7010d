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

    def to_json(self) -> str:
        """Encode it for the command line."""
        options = json.loads(self.options.to_json())
        fields = {"target": self.target, "options": options, "log": [self.log_format, self.log_level]}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """Decode the text of `to_json`."""
        try:
            fields: Any = json.loads(text)
            log_format, log_level = fields["log"]
            return cls(fields["target"], WorkerOptions.from_json(json.dumps(fields["options"])), log_format, log_level)
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"these are not the arguments of a child of `duly worker`: {text[:200]!r}") from error
