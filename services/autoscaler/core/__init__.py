"""The autoscaler's core: events in, instructions out. Pure."""
