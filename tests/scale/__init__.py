"""Tests with several servers: sentinels, clusters, and networks that can be cut."""
