"""Learning algorithms, each one file that reads from top to bottom; a run brings networks, episodes and validation."""
