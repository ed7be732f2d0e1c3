"""What a policy does beside a baseline, in figures a person can judge."""
