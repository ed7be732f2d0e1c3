"""Whether a learned policy places by itself or another instead of it: rehearsed beside the leader, never on its loop."""
