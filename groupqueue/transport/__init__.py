"""How operations reach a server: scripts, clients, connections."""
