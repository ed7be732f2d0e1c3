"""``conclave rebalance``: which pods should stand elsewhere, and moving them there."""
