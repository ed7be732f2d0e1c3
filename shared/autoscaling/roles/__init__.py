"""Roles and missions (MOISE+MARL): which steps are allowed when, and what is rewarded. Written in YAML."""
