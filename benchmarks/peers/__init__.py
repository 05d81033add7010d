"""How other queues are measured beside Duly: an environment and a process for each, one protocol for all.

Here, in the benchmark's process: `catalog`, `environments`, `parties`. There, in an environment where only the peer is
installed: `party`, `recorder` and `adapters`, which import nothing else of this project but Duly's own adapter.
"""
