"""Whether ``frag``'s learned value or FGD places: both play the demand at hand, on its own nodes."""
