"""The queue in pure Python: the reference model that the scripts are held against, and `memory://`.

The same calls, the same answers, byte for byte; no server, and a clock that can be moved.
"""
