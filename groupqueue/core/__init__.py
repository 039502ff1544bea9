"""What a queue operation is, as data: pure code without I/O, clock or Django."""
