"""Pods that are all pending before a scheduler starts: how fast they are bound, and what that costs."""
