"""Whether a learned policy places by itself or another in its stead: rehearsed beside the leader, never on its loop."""
