"""How many replicas each service is to have: rules, learned policies, and the safeguards around them. Pure."""
