"""Calls between services, and who is at the other end."""
