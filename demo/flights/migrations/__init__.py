"""How the demo's tables come about."""
