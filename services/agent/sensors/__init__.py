"""What an agent that runs on its node measures: the node's use, and round trips to other nodes and to named targets."""
