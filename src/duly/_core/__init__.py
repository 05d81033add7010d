"""The pure core: what Duly says to a server and how it reads the answer.

No redis, asyncio, threads, sockets or wall clock in here: time and randomness are arguments.
"""
