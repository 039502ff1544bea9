"""Do the benchmarks run, and are the promises about fairness kept?

How fast things are is for people to judge.
"""
