"""`duly demo`: real processes send and receive, one of them is killed, and the books are balanced in front of you.

Producers and consumers use public names of Duly only, as programs of yours would.
"""
