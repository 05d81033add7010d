"""The pure core: what Duly says to a server and how it reads the answer.

No redis, asyncio or sockets in here; time and randomness are arguments. Two exceptions: `gates` has locks for threads,
and `publishing` looks at the clock before a group begins in the future.
"""
