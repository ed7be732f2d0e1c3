"""Rewards of a user's own, as a process gets them: from plug-ins, and signals from a Prometheus."""
