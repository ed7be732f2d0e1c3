"""Which nodes evicting lower priorities opens, and whom to evict there."""
