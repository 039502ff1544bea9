"""How messages are handled: a supervisor, its child processes, and what runs in them."""
