"""Benchmarks: one file per question. Each compares with raw redis-py in the same run. See README.md."""
