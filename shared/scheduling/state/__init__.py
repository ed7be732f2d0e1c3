"""The cluster as decisions see it: tables of nodes, indexes of pods, accounting."""
