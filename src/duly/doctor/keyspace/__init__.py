"""A walk through the keys of a namespace: bounded, and nothing is changed.

A queue has few keys, whatever it holds, so the walk is short unless there are very many queues. `walking` finds the
keys and keeps the bounds; each of the others looks at one thing.
"""

from duly.doctor.keyspace.looking import look

__all__ = ["look"]
