"""The client, written by hand for asyncio. `duly._sync` is generated from it."""
