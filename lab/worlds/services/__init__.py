"""Service graphs in the twin: queues, pods and nodes under a load, second by second. Pure, and a function of a seed."""
