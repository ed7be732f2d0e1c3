"""The listening side of a service: peer routes, limits, connections."""
