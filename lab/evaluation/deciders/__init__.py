"""Who decides in a suite beside the policies: oracles, heuristics, the mesh's own way."""
