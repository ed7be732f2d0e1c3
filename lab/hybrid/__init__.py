"""Mixtures of policies on the twin: what weights are worth, and which are best."""
