"""What is looked at and moved next, and when a goal is given up. Pure."""
