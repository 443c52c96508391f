"""Every peer in one run, each in a process of its own, rounds interleaved: `python -m benchmarks.peers`."""
