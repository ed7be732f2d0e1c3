"""The search for the devices of one node that a pod's claims are given."""
