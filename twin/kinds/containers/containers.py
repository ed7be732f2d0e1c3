"""Validation of containers: names, images, ports, resources, security; the rest is in the ``container_*`` files.

Source: ``pkg/apis/core/validation/validation.go`` (validateContainers, validateInitContainers,
validateEphemeralContainers). Errors come in the real server's order, because clients print the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.kinds.containers.hooks import PROBES, check_hooks_and_probes
from twin.kinds.containers.inputs import check_env, check_env_from, check_mounts
from twin.kinds.rules.names import dns_label, port_name, port_number
from twin.kinds.rules.resources import check_requirements
from twin.registry.status import (
    FieldError,
    duplicate,
    field_not_found,
    forbidden_field,
    invalid,
    not_supported,
    required,
)

Json = dict[str, Any]

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_NOT_FOR_EPHEMERAL = (
    "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy", "restartPolicy",
    "restartPolicyRules",
)  # fmt: skip
_INIT_ONLY_TEXT = "may not be set for init containers without restartPolicy=Always"
_PLAIN_KEYS = frozenset(
    ("name", "image", "command", "args", "workingDir", "resources", "terminationMessagePath",
     "terminationMessagePolicy", "imagePullPolicy", "stdin", "stdinOnce", "tty")
)  # fmt: skip


def check_containers(spec: Json, volumes: set[str], field: str) -> list[FieldError]:
    """validateContainers: of ``spec.containers``; ``field`` is the spec's path."""
    containers = spec.get("containers") or []
    here = f"{field}.containers"
    if not containers:
        return [required(here)]
    found: list[FieldError] = []
    names: set[str] = set()
    for index, one in enumerate(containers):
        path = f"{here}[{index}]"
        found += _check_common(one, volumes, path, spec)
        if one["name"] in names:
            found.append(duplicate(f"{path}.name", one["name"]))
        names.add(one["name"])
        if one.keys() <= _PLAIN_KEYS:
            continue
        found += check_hooks_and_probes(one, path, spec)
        if one.get("restartPolicy") is not None and not one.get("restartPolicyRules"):
            found += _check_container_restart_policy(one, path)
    return found + _check_host_port_conflicts(containers, here)


def _check_container_restart_policy(one: Json, path: str) -> list[FieldError]:
    """Regular containers may name one since ContainerRestartRules (beta)."""
    policies = ("Always", "OnFailure", "Never")
    if one["restartPolicy"] not in policies:
        return [not_supported(f"{path}.restartPolicy", one["restartPolicy"], policies)]
    return []


def check_init_containers(spec: Json, volumes: set[str], field: str) -> list[FieldError]:
    """validateInitContainers."""
    names = {one["name"] for one in spec.get("containers") or ()}
    found: list[FieldError] = []
    for index, one in enumerate(spec.get("initContainers") or ()):
        path = f"{field}.initContainers[{index}]"
        found += _check_common(one, volumes, path, spec)
        if one.get("restartPolicy") is not None:
            found += _check_container_restart_policy(one, path)
        if one["name"] in names:
            found.append(duplicate(f"{path}.name", one["name"]))
        elif one["name"]:
            names.add(one["name"])
        found += _check_host_port_conflicts([one], f"{field}.initContainers")
        if one.get("restartPolicy") == "Always":
            found += check_hooks_and_probes(one, path, spec)
        else:
            found += [
                forbidden_field(f"{path}.{name}", _INIT_ONLY_TEXT) for name in ("lifecycle", *PROBES) if name in one
            ]
    return found


def check_ephemeral_containers(spec: Json, volumes: set[str], field: str) -> list[FieldError]:
    """validateEphemeralContainers."""
    others = {one["name"] for kind in ("containers", "initContainers") for one in spec.get(kind) or ()}
    names = set(others)
    found: list[FieldError] = []
    for index, one in enumerate(spec.get("ephemeralContainers") or ()):
        path = f"{field}.ephemeralContainers[{index}]"
        found += _check_common(one, volumes, path, spec)
        found += check_image_space(one, path)
        if one["name"] in names:
            found.append(duplicate(f"{path}.name", one["name"]))
        names.add(one["name"])
        target = one.get("targetContainerName")
        if target and target not in others:
            found.append(field_not_found(f"{path}.targetContainerName", target))
        text = "cannot be set for an Ephemeral Container"
        found += [forbidden_field(f"{path}.{name}", text) for name in _NOT_FOR_EPHEMERAL if one.get(name)]
        if one.get("resources"):
            found.append(forbidden_field(f"{path}.resources", text))
        for number, mount in enumerate(one.get("volumeMounts") or ()):
            for name in ("subPath", "subPathExpr"):
                if mount.get(name):
                    found.append(forbidden_field(f"{path}.volumeMounts[{number}].{name}", text))
    return found


def check_image_space(one: Json, path: str) -> list[FieldError]:
    """validateContainerOnlyForPod: templates may have spaces around an image, pods may not."""
    image = one.get("image", "")
    if image != image.strip():
        return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]
    return []


def _check_common(one: Json, volumes: set[str], path: str, spec: Json) -> list[FieldError]:
    found: list[FieldError] = []
    name = one["name"]
    if not name:
        found.append(required(f"{path}.name"))
    elif messages := dns_label(name):
        found += [invalid(f"{path}.name", name, message) for message in messages]
    if not one.get("image"):
        found.append(required(f"{path}.image"))
    policy = one.get("terminationMessagePolicy", "")
    if policy not in _MESSAGE_POLICIES:
        found.append(not_supported(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES))
    if not one.keys() <= _PLAIN_KEYS:
        found += _check_ports(one.get("ports") or (), f"{path}.ports")
        found += check_env(one.get("env") or (), f"{path}.env")
        found += check_env_from(one.get("envFrom") or (), f"{path}.envFrom")
        found += check_mounts(one, volumes, path)
    if one.get("imagePullPolicy") not in _PULL_POLICIES:
        found.append(not_supported(f"{path}.imagePullPolicy", one.get("imagePullPolicy", ""), _PULL_POLICIES))
    resources = one.get("resources")
    if resources:
        found += check_requirements(resources, f"{path}.resources")
        claims = {claim["name"] for claim in spec.get("resourceClaims") or ()}
        found += _check_claims(resources.get("claims") or (), claims, f"{path}.resources.claims")
    found += _check_resize_policy(one.get("resizePolicy") or (), f"{path}.resizePolicy", spec)
    if one.get("securityContext"):
        found += check_security_context(one["securityContext"], f"{path}.securityContext")
    return found


def _check_claims(claims: Iterable[Json], known: set[str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        name, request = claim.get("name", ""), claim.get("request", "")
        if not name:
            found.append(required(f"{path}[{index}].name"))
            continue
        if (name, request) in seen:
            found.append(duplicate(f"{path}[{index}]", f"{name}/{request}" if request else name))
        seen.add((name, request))
        if name not in known:
            found.append(field_not_found(f"{path}[{index}].name", name))
    return found


def _check_ports(ports: Iterable[Json], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            messages = port_name(name)
            found += [invalid(f"{here}.name", name, message) for message in messages]
            if not messages:
                if name in names:
                    found.append(duplicate(f"{here}.name", name))
                names.add(name)
        if not port.get("containerPort"):
            found.append(required(f"{here}.containerPort"))
        else:
            number = port["containerPort"]
            found += [invalid(f"{here}.containerPort", number, message) for message in port_number(number)]
        if host := port.get("hostPort"):
            found += [invalid(f"{here}.hostPort", host, message) for message in port_number(host)]
        protocol = port.get("protocol", "")
        if not protocol:
            found.append(required(f"{here}.protocol"))
        elif protocol not in _PROTOCOLS:
            found.append(not_supported(f"{here}.protocol", protocol, _PROTOCOLS))
    return found


def _check_host_port_conflicts(containers: Iterable[Json], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, one in enumerate(containers):
        for number, port in enumerate(one.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if text in seen:
                found.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", text))
            seen.add(text)
    return found


def _check_resize_policy(policies: Iterable[Json], path: str, spec: Json) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, one in enumerate(policies):
        name, restart = one.get("resourceName", ""), one.get("restartPolicy", "")
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        if not name:
            found.append(required(path))
        elif name not in ("cpu", "memory"):
            found.append(not_supported(path, name, ("cpu", "memory")))
        if not restart:
            found.append(required(path))
        elif restart not in ("NotRequired", "RestartContainer"):
            found.append(not_supported(path, restart, ("NotRequired", "RestartContainer")))
        if spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            found.append(invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
    return found


def check_security_context(context: Json, path: str) -> list[FieldError]:
    """ValidateSecurityContext: ids and the contradictions of privilege."""
    found: list[FieldError] = []
    for name in ("runAsUser", "runAsGroup"):
        value = context.get(name)
        if value is not None and not 0 <= value <= 2**31 - 1:
            found.append(invalid(f"{path}.{name}", value, "must be between 0 and 2147483647, inclusive"))
    if context.get("procMount") not in (None, "Default", "Unmasked"):
        found.append(not_supported(f"{path}.procMount", context["procMount"], ("Default", "Unmasked")))
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            found.append(invalid(path, context, text))
        elif "SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.append(invalid(path, context, text))
    return found
