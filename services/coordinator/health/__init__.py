"""Whether the leader is well: its loop, its verdict, its last hour."""
