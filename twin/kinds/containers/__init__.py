"""Validation of what is inside a pod's containers."""
