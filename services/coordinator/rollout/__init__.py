"""Policy variants (active and candidate), how they are compared, and the policy pointer."""
