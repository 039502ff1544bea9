"""The proof of scripts and transports: what a shard promises, on every kind of server."""
