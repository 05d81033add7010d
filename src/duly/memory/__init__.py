"""The queue in pure Python: the backend of `memory://`, and the reference model that the scripts are compared with.

It accepts the same calls and returns the same answers, byte for byte. It needs no server, and tests can move its clock.
"""
