"""How an agent decides, for the agents' own processes and for the leader where none is registered. Pure."""
