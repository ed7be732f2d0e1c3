"""``conclave pki``: certificates for a mesh, and etcd's users and roles."""
