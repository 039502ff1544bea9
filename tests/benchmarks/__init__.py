"""Do the benchmarks run? What they measure is for people to judge."""
