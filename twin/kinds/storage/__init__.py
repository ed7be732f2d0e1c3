"""Volumes, claims, classes, and the volumes of pods."""
