"""What a supervising parent tells its children to do, as it stands on their command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from duly.errors import UsageError
from duly.worker.logs import LogFormat
from duly.worker.worker_options import WorkerOptions


@dataclass(frozen=True)
class Assignment:
    """Which app to serve and how. Holds nothing secret: command lines can be read by everybody."""

    target: str
    options: WorkerOptions
    log_format: LogFormat = "text"
    log_level: str = "info"

    def to_json(self) -> str:
        """Write it down for the command line."""
        options = json.loads(self.options.to_json())
        fields = {"target": self.target, "options": options, "log": [self.log_format, self.log_level]}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """Read what `to_json` wrote."""
        try:
            fields: Any = json.loads(text)
            log_format, log_level = fields["log"]
            return cls(fields["target"], WorkerOptions.from_json(json.dumps(fields["options"])), log_format, log_level)
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"this is not what `duly worker` hands to its children: {text[:200]!r}") from error
