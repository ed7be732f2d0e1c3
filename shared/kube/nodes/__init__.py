"""What is published of nodes beside the Node: zones, use, latencies."""
