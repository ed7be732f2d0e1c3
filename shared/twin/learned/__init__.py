"""A twin of a service graph that was learned from its recorded series: look-up where it was seen, networks elsewhere."""
