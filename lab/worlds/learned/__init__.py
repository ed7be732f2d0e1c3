"""A twin of a service graph, learned from its recorded series: look-up where it was seen, networks elsewhere."""
