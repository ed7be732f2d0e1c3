"""What services keep in etcd, read and changed by the rules of each record."""
