"""What kinds share: typed decoding, names, quantities, resource names, printing."""
