"""The worker, proved on real processes and real servers."""
