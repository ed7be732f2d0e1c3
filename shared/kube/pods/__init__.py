"""Pods as typed structs, and their conversion to the model."""
