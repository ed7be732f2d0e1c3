"""Which pods of a cluster should stand elsewhere, and in which order they move there. Pure."""
