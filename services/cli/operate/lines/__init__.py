"""What the admin API answers, as lines for people. Pure."""
