"""Whether a learned policy places by itself or another instead: rehearsed beside the leader, never on its loop."""
