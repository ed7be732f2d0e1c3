"""What the jobs service decides, without I/O: events in, instructions out."""
