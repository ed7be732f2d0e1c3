"""Trains mixtures of policies: weights per class of pods, fitted on the twin."""
