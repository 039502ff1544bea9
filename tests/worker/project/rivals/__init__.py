"""An app with a handler for a topic that is taken."""
