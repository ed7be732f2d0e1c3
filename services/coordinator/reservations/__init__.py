"""Reservations: pods into room that is kept for them, what becomes of it, and how nodes are marked meanwhile."""
