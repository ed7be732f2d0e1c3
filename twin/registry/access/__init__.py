"""Who may do what: RBAC and the review kinds."""
