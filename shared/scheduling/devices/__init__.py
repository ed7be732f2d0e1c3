"""Devices by claim: kube-scheduler's plugin DynamicResources as pure rules, a file per idea."""
