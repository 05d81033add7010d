"""Benchmarks: one file a question, each beside raw redis-py in the same run. See README.md."""
