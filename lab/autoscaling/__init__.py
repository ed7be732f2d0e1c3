"""Autoscaling policies on the twin's service graphs: episodes, figures, the suite, and its calibration."""
