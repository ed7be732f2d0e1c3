"""Placing the members of a pod group together, in thought: what fits, in which domain, and who would have to leave."""
