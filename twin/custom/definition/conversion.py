"""How versions become each other: by name alone, or by a webhook.

Source: apiextensions ``validateCustomResourceConversion``; k8s.io/apiserver ``pkg/util/webhook/validation.go``.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from twin.kinds.rules.names import dns_label_1035, dns_subdomain, port_number
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

_FORM = "; desired format: https://host[/path]"
_KNOWN_REVIEWS = ("v1", "v1beta1")
_STRATEGIES = ("None", "Webhook")


def conversion_errors(conversion: Json | None, where: str) -> list[FieldError]:
    """What is wrong with ``spec.conversion``; the server knows its parts by the names of its first version."""
    if conversion is None:
        return []
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook")
    found: list[FieldError] = []
    if not strategy:
        found.append(required(f"{where}.strategy"))
    elif strategy not in _STRATEGIES:
        found.append(not_supported(f"{where}.strategy", strategy, _STRATEGIES))
    client = (webhook or {}).get("clientConfig")
    reviews = (webhook or {}).get("conversionReviewVersions") or []
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            found.append(forbidden_field(f"{where}.webhookClientConfig", text))
        if reviews:
            found.append(forbidden_field(f"{where}.conversionReviewVersions", text))
        return found
    if client is None:
        found.append(required(f"{where}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        found += _client(client, f"{where}.webhookClientConfig")
    return found + _reviews(reviews, f"{where}.conversionReviewVersions")


def _client(client: Json, where: str) -> list[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(where, "exactly one of url or service is required")]
    return _url(url, f"{where}.url") if url is not None else _service(service or {}, f"{where}.service")


def _url(url: str, where: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(where, f"url must be a valid URL: {error}{_FORM}")]
    user, _, host = parts.netloc.rpartition("@")
    found: list[FieldError] = []
    if parts.scheme != "https":
        found.append(invalid(where, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        found.append(invalid(where, host, f"host must be specified{_FORM}"))
    for value, name in (
        (user, "user information is"),
        (parts.fragment, "fragments are"),
        (parts.query, "query parameters are"),
    ):
        if value:
            found.append(invalid(where, value, f"{name} not permitted in the URL"))
    return found


def _service(service: Json, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    # the server hands the two to its check in the wrong order, and so names the other one
    for key, named in (("namespace", "name"), ("name", "namespace")):
        if not service.get(key):
            found.append(required(f"{where}.{named}"))
    port, path = service.get("port", 443), service.get("path")
    found += [invalid(f"{where}.port", port, f"port is not valid: {text}") for text in port_number(port)]
    if not path or path == "/":
        return found
    if path == "//":
        return [*found, invalid(f"{where}.path", path, "segment[0] may not be empty")]
    if not path.startswith("/"):
        found.append(invalid(f"{where}.path", path, "must start with a '/'"))
    for index, segment in enumerate(re.sub("/$", "", path[1:]).split("/")):
        if not segment:
            found.append(invalid(f"{where}.path", path, f"segment[{index}] may not be empty"))
        else:
            found += [invalid(f"{where}.path", path, f"segment[{index}]: {text}") for text in dns_subdomain(segment)]
    return found


def _reviews(versions: list[str], where: str) -> list[FieldError]:
    if not versions:
        return [required(where)]
    found: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            found.append(invalid(f"{where}[{index}]", version, "duplicate version"))
        else:
            found += [invalid(f"{where}[{index}]", version, text) for text in dns_label_1035(version)]
    if not set(versions) & set(_KNOWN_REVIEWS):
        found.append(invalid(where, versions, f"must include at least one of {', '.join(_KNOWN_REVIEWS)}"))
    return found
