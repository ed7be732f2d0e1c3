"""What a leading rebalancer reads and writes: the cluster, moves, its records in etcd."""
