"""What parts of the mesh and the twin cost one by one: a decision, a call, a client, a server, a reading."""
