"""The autoscaler: keeps the services that `ResilientAutoscaler` objects name at the size their load asks for."""
