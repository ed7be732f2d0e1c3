"""Rewards of a user's own: expressions over measured features, and values that change over the day."""
