"""Entry point of a sensor: ``python -m services.sensor [--SETTING VALUE]...``."""

from __future__ import annotations

from services.sensor.app import run

if __name__ == "__main__":
    raise SystemExit(run())
