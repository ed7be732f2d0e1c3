"""For every test: generated inputs are judged by what the code does with them, never by how busy the machine is; and no
mesh imports its services anew.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.process.mesh import Mesh

settings.register_profile("conclave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("conclave")
Mesh.forks = True
