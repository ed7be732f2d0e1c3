"""What a leader shows of itself to people: overview, nodes, explanations, figures. Pure."""
