"""The pure core: the calls that Duly sends to a server, and how it decodes the replies.

This package uses no redis, asyncio, sockets, threads or logs. Time and randomness are arguments. Functions return
lines for the log.
"""
