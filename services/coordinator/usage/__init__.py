"""What nodes really use, and which workloads stand on them: for policies that ask for it."""
