"""Baselines: policies that nobody trained. Each asks the HPA's rule in the end, as what they imitate does. Pure."""
