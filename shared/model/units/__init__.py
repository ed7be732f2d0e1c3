"""Pods that are judged together, and what they count against: groups, queues, reservations."""
