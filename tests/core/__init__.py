"""The proof of the pure code: no server, no clock, no Django."""
