"""How fast are others with the same work? `python -m benchmarks.peers` measures them."""
