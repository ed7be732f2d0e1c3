"""The audit's judges of units: gangs, groups, queues, evictions."""
