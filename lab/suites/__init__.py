"""The suites, and the published figures they must reproduce."""
