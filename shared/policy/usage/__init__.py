"""What pods and nodes were seen to use: what policies read of it."""
