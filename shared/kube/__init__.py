"""Kubernetes API objects as typed structs (only the fields a scheduler reads), and their conversion to the model."""
