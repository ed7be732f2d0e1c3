"""Emptying one node: who leaves, where room is kept for them, and in which order they are asked to."""
