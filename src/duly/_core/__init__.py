"""The pure core: what Duly says to a server and how it reads the answer.

No redis, asyncio, sockets, threads or logs in here. Time and randomness are arguments. Lines for the log are returned.
"""
