"""Management commands: arguments only."""
