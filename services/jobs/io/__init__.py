"""What the jobs service does on the network: watches, writes, reports."""
