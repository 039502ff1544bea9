"""How fast is groupqueue on this machine? `python -m benchmarks.run` measures it."""
