"""Which server a command speaks to: flags before the environment before the current context, and never by guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cli.server.contexts import ContextEntry, Contexts
from services.cli.server.target import Direct, Flags, ServerCredentials, ThroughKubectl, resolve
from shared.errors import ConfigError

STORED = Contexts(
    "prod",
    {
        "prod": ContextEntry(kube_context="prod-eu", namespace="sched"),
        "dev": ContextEntry(server="http://dev:8701", token_file="/t/dev"),
        "tls": ContextEntry(server="https://a:1,https://b:2", ca="/ca", cert="/c", key="/k"),
    },
)
ENVIRON = {"CONCLAVE_SERVER": "http://env:8701", "CONCLAVE_TOKEN_FILE": "/t/env"}


def found(flags: Flags, environ: dict[str, str] | None = None, *, kubectl: bool = False) -> object:
    return resolve(flags, environ or {}, lambda: STORED, kubectl=kubectl)


def unread() -> Contexts:
    raise AssertionError("the contexts must not be read when a flag or the environment decides")


def test_a_flag_wins_over_environment_and_context() -> None:
    target = resolve(Flags(server="http://flag:1/"), ENVIRON, unread)
    assert target == Direct(("http://flag:1",), ServerCredentials(token_file=Path("/t/env")), "--server")


def test_the_environment_wins_over_the_current_context() -> None:
    assert resolve(Flags(), ENVIRON, unread) == Direct(
        ("http://env:8701",), ServerCredentials(token_file=Path("/t/env")), "CONCLAVE_SERVER"
    )


def test_a_named_context_wins_over_the_environment() -> None:
    target = found(Flags(context="dev"), ENVIRON)
    assert target == Direct(("http://dev:8701",), ServerCredentials(token_file=Path("/t/dev")), "context dev")


def test_the_current_context_is_the_last_resort() -> None:
    assert found(Flags()) == ThroughKubectl("prod-eu", "sched", ServerCredentials(), "context prod")


def test_a_token_file_given_replaces_that_of_the_context() -> None:
    target = found(Flags(context="dev", token_file=Path("/t/mine")))
    assert isinstance(target, Direct)
    assert target.credentials.token_file == Path("/t/mine")


def test_a_context_may_name_several_servers_and_a_certificate() -> None:
    target = found(Flags(context="tls"))
    assert isinstance(target, Direct)
    assert target.urls == ("https://a:1", "https://b:2")
    assert target.credentials == ServerCredentials(ca=Path("/ca"), cert=Path("/c"), key=Path("/k"))


def test_a_kube_context_is_reached_in_the_namespace_of_the_manifests() -> None:
    assert found(Flags(kube_context="x"), ENVIRON) == ThroughKubectl(
        "x", "conclave-system", ServerCredentials(), "kube context x"
    )


def test_under_kubectl_the_context_is_kubectls_and_nothing_else_counts() -> None:
    assert found(Flags(context="dev", mesh_namespace="ns"), ENVIRON, kubectl=True) == ThroughKubectl(
        "dev", "ns", ServerCredentials(), "kube context dev"
    )
    assert found(Flags(), ENVIRON, kubectl=True) == ThroughKubectl(
        "", "conclave-system", ServerCredentials(), "kubectl's current context"
    )


def test_with_nothing_named_there_is_no_server() -> None:
    with pytest.raises(ConfigError, match="no server: give --server URL"):
        resolve(Flags(), {}, Contexts)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(Flags(server="http://a", context="dev"), "--context: --server names", id="two ways"),
        pytest.param(Flags(context="dve"), "did you mean dev", id="misspelt context"),
        pytest.param(Flags(server="http://a", mesh_namespace="n"), "--mesh-namespace: belongs to", id="namespace"),
        pytest.param(Flags(context="dev", mesh_namespace="n"), "--mesh-namespace: belongs", id="namespace of a server"),
        pytest.param(Flags(server="a:8701"), "is no server's URL", id="no scheme"),
        pytest.param(Flags(server="http://a:99999"), "is no server's URL", id="port"),
        pytest.param(Flags(server="http://u:p@a"), "more than scheme, host and port", id="password"),
        pytest.param(Flags(server="http://a/v1"), "more than scheme, host and port", id="path"),
        pytest.param(Flags(server=" , "), "is empty", id="empty"),
        pytest.param(Flags(server="http://a", ca=Path("/x")), "write https://", id="TLS files without TLS"),
        pytest.param(Flags(server="https://a", cert=Path("/x")), "--cert: goes together with --key", id="no key"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_remedy(flags: Flags, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        found(flags)


def test_a_token_file_for_no_server_is_refused_not_ignored() -> None:
    with pytest.raises(ConfigError, match="--token-file: no server it could be for"):
        resolve(Flags(token_file=Path("/t")), {}, Contexts)
