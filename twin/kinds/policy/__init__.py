"""Kinds that limit others: quotas, limit ranges, priorities, disruption budgets."""
