"""Whom to evict so that a pod of higher priority fits, and who had to leave for whom."""
