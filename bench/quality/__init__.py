"""How good placements are: the regret of each against the best node at its commit, by scene, setting and policy."""
