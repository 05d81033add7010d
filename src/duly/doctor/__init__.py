"""The examination of a server and a namespace: what is found, why it matters, and what mends it.

Facts are collected over a plain connection (`examination`), so that a server can be examined that an app refuses.
What they mean is said by small pure functions (`checks`). Nothing here changes anything on the server.
"""

from duly.doctor.examination import examine
from duly.doctor.report import Finding, Report, Verdict

__all__ = ["Finding", "Report", "Verdict", "examine"]
