"""The HTTP API: what can be asked, as a table of values, and how an answer is made of one."""

from duly.web.api.serving import mount

__all__ = ["mount"]
