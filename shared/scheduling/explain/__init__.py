"""Why no node takes a pod, and what would help: for people."""
