"""The examination of a server and a namespace: findings, why they matter, and how to fix them.

`examination` collects facts over a plain connection, so it can examine servers that an app refuses. Small pure
functions in `checks` judge the facts. Nothing here changes anything on the server.
"""

from duly.doctor.examination import examine
from duly.doctor.report import Finding, Report, Verdict

__all__ = ["Finding", "Report", "Verdict", "examine"]
