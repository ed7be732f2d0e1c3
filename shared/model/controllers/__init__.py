"""What the two controllers decide on."""
