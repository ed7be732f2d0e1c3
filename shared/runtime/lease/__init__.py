"""Leadership and membership by etcd leases, kept alive by a thread of their own."""
