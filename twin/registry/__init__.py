"""The generic registry: what every kind shares, from metadata rules to the store and its watch cache."""
