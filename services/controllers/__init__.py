"""Both controllers in one process: a candidate jobs service and a candidate autoscaler, on one event loop."""
