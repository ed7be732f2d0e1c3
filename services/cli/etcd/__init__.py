"""What works without a leader: status and policy straight from etcd."""
