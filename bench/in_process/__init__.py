"""The cores of a whole mesh in one process, with an API server and an etcd in memory: what deciding alone costs."""
