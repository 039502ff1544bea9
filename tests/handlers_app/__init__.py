"""An app whose handlers are there to be discovered."""
