"""The rebalancer: a standing service that moves pods to where they should stand, once an operator lets it."""
