"""`duly demo`: processes send and receive messages, one of them is killed, and every message is accounted for.

Producers and consumers only use public names of Duly, like your own programs.
"""
