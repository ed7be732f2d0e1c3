"""What autoscalers read and write."""
