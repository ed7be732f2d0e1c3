"""What an autoscaler's instructions become: reads and writes of the API server, of metrics and of etcd."""
