"""Learning on the twin's service graphs: the environment for others' tools, and the trainer of ``karma``."""
