"""Kinds of ``resource.k8s.io``: classes, claims, templates, slices and taint rules of devices."""
