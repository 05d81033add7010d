"""Measures other queues: a virtual environment and processes for each, and one protocol for all.

`catalog`, `environments` and `parties` run in the benchmark's process. `party`, `recorder` and `adapters` run in an
environment where only the peer is installed. Of this project, they import nothing but each other; only Duly's adapter
imports Duly.
"""
