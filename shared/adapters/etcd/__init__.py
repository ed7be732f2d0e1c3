"""etcd behind the ports: channels, leases, watches, the store; and the same in memory."""
