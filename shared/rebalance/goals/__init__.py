"""What a cluster is to come nearer to: measures that are sums over nodes or pods."""
