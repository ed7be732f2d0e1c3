"""What people are told about pods: the condition PodScheduled, and events."""
