"""Custom resources: kinds that come and go with their CustomResourceDefinition."""
