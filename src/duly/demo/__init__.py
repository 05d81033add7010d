"""`duly demo`: real processes send and receive, one of them is killed, and the books are balanced in front of you.

Everything here uses public names of Duly only, as a program of yours would.
"""
