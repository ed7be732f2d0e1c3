"""Kubelets and controllers that the twin plays, a few writes per turn of the loop."""
