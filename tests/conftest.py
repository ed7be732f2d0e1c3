"""For every test: generated inputs are judged by what the code does with them, never by how busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("conclave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("conclave")
