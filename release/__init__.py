"""What a release is made of: the Helm chart, lists of what images hold, provenance, signatures, krew."""
