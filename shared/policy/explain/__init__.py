"""What of a learned policy can be looked into, and why it chose."""
