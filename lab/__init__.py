"""The lab: everything that makes policies, and says how good they are."""
