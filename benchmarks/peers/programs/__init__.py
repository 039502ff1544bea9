"""What runs in each peer's own environment: a publisher and a worker, given the same job."""
