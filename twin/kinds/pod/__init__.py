"""Pods: defaults, admission, validation, updates, binding, eviction, resize, printing."""
