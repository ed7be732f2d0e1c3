"""Workloads and traces: reading, making and ordering them."""
