"""Probes and life-cycle hooks of containers.

Source: ``pkg/apis/core/validation/validation.go`` (validateHandler, validateProbe, validateLifecycle).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check_not_negative, port_name, port_number
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check_hooks_and_probes(one: Json, path: str, spec: Json) -> list[FieldError]:
    found: list[FieldError] = []
    grace = spec.get("terminationGracePeriodSeconds")
    for name in ("postStart", "preStop"):
        hook = (one.get("lifecycle") or {}).get(name)
        if hook is not None:
            found += _check_handler(hook, grace, f"{path}.lifecycle.{name}")
    for name in PROBES:
        probe = one.get(name)
        if probe is None:
            continue
        here = f"{path}.{name}"
        found += _check_handler(probe, grace, here)
        for number in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            found += check_not_negative(f"{here}.{number}", probe.get(number))
        seconds = probe.get("terminationGracePeriodSeconds")
        if seconds is not None and seconds <= 0:
            found.append(invalid(f"{here}.terminationGracePeriodSeconds", seconds, "must be greater than 0"))
        if name != "readinessProbe" and probe.get("successThreshold") != 1:
            found.append(invalid(f"{here}.successThreshold", probe.get("successThreshold", 0), "must be 1"))
        if name == "readinessProbe" and seconds is not None:
            text = "must not be set for readinessProbes"
            found.append(invalid(f"{here}.terminationGracePeriodSeconds", seconds, text))
    return found


def _check_handler(handler: Json, grace: int | None, path: str) -> list[FieldError]:
    kinds = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not kinds:
        return [required(path, "must specify a handler type")]
    kind, found = kinds[0], []
    here, action = f"{path}.{kind}", handler[kinds[0]]
    if kind == "exec" and not action.get("command"):
        found.append(required(f"{here}.command"))
    elif kind == "httpGet":
        if not action.get("path"):
            found.append(required(f"{here}.path"))
        found += check_port_or_name(action.get("port", 0), f"{here}.port")
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            found.append(not_supported(f"{here}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS")))
    elif kind in ("tcpSocket", "grpc"):
        found += check_port_or_name(action.get("port", 0), f"{here}.port")
    elif kind == "sleep" and grace is not None and not 0 <= action.get("seconds", 0) <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        found.append(invalid(here, action.get("seconds", 0), text))
    text = "may not specify more than 1 handler type"
    return found + [forbidden_field(f"{path}.{other}", text) for other in kinds[1:]]


def check_port_or_name(port: int | str, path: str) -> list[FieldError]:
    """ValidatePortNumOrName."""
    messages = port_number(port) if isinstance(port, int) else port_name(port)
    return [invalid(path, port, message) for message in messages]
