"""Moves of pods at the API server: what a planner reads, carrying a plan out, what was moved before."""
