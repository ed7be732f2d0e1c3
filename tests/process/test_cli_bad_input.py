"""Bad input to ``conclave``: one clear line on stderr that names the field and the remedy, and exit code 2."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from tests.process.fork_server import CLI, fork_server

pytestmark = pytest.mark.process

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,1024,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,100,1,0,0\n"


def conclave(*arguments: str, cwd=None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CONCLAVE_")}
    return fork_server().run(CLI, arguments, environ=environment, cwd=cwd)


def refused(*arguments: str, words: tuple[str, ...], cwd=None, code: int = 2) -> str:
    """Run, and check that it is refused in one line that holds all ``words``."""
    done = conclave(*arguments, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--nodez", "4"), ("--nodez", "--nodes")),
        (("frobnicate",), ("frobnicate", "--help")),
        (("demo", "--workload", "poisson"), ("--workload", "uniform", "openb")),
        (("demo", "--agents", "0"), ("--agents", "1")),
        (("demo", "--agents", "many"), ("--agents", "integer")),
        (("demo", "--speed", "0"), ("--speed", "0.01")),
        (("demo", "--kill", "leader"), ("--kill", "leader@5")),
        (("demo", "--kill", "twin@5"), ("--kill", "leader|agent|binder|etcd")),
        (("demo", "--policy", "crystal-ball"), ("policy", "crystal-ball", "kube-default")),
        (("demo", "--json", "/nonexistent/x.json"), ("--json", "/nonexistent/x.json")),
        (("demo", "--workload", "openb"), ("--trace-dir", "openb_node_list")),
        (("demo", "--workload", "openb", "--trace-dir", "/nonexistent"), ("--trace-dir", "/nonexistent", "folder")),
        (("evaluate",), ("--suite", "--trace")),
        (("evaluate", "--behaviour", "crystal-ball"), ("crystal-ball", "kube-default")),
        (("evaluate", "--suite", "poker"), ("--suite", "thesis", "openb")),
        (("evaluate", "--suite", "thesis", "--seeds", "42-"), ("--seeds", "42-51")),
        (("evaluate", "--suite", "thesis", "--nodes", "n.csv"), ("--nodes", "--trace")),
        (("evaluate", "--suite", "thesis", "--json", "/nonexistent/x.json"), ("--json", "/nonexistent/x.json")),
        (("evaluate", "--suite", "openb", "--trace-dir", "/nonexistent"), ("--trace-dir", "/nonexistent")),
        (("evaluate", "--suite", "thesis", "--curves", "/nonexistent"), ("--curves", "/nonexistent")),
        (("train", "crystal-ball"), ("crystal-ball", "'ee'")),
        (("train", "ee", "--seeds", "42-51"), ("--seeds", "42", "1000")),
        (("train", "ee", "--warm-up", "/nonexistent"), ("--warm-up", "/nonexistent", "kube-default")),
        (("twin", "capture", "--kubeconfig", "/nonexistent", "--out", "o"), ("/nonexistent",)),
        (("twin", "capture", "--kubeconfig", "k", "--out", "o", "--duration", "long"), ("--duration", "10m")),
        (("twin", "capture", "--kubeconfig", "k", "--out", "/nonexistent/o"), ("--out", "/nonexistent/o")),
        (("twin", "replay", "/nonexistent"), ("/nonexistent", "conclave twin capture")),
        (("twin", "replay", "/nonexistent", "--policy", "crystal-ball"), ("crystal-ball", "kube-default")),
        (("up",), ("--kubeconfig",)),
        (("up", "--kubeconfig", "/nonexistent"), ("/nonexistent",)),
        (("run", "cook"), ("cook", "coordinator")),
        (("status", "--etcd", "nonsense"), ("nonsense", "host:port")),
        (("audit", "/nonexistent"), ("/nonexistent", "--audit")),
        (("wire", "decode", "/nonexistent"), ("/nonexistent",)),
    ],
)
def test_a_bad_argument_is_one_line(arguments, words):
    refused(*arguments, words=words)


def test_an_etcd_that_does_not_answer_is_no_bad_input_to_ask_it_again_may_help():
    refused("status", "--etcd", "http://127.0.0.1:1", words=("--etcd", "http://127.0.0.1:1", "start it"), code=1)


@pytest.mark.parametrize(
    ("nodes", "pods", "words"),
    [
        (NODES, PODS.replace("100", "1x0"), ("openb_pod_list_default.csv", "line 2", "cpu_milli", "whole number")),
        (NODES, PODS.replace(",0,0\n", "\n"), ("line 2", "num_gpu", "cut")),
        (NODES.replace("1000", ""), PODS, ("openb_node_list_gpu_node.csv", "line 2", "cpu_milli")),
        (NODES, "", ("line 1", "header")),
        (NODES, "\x00" + PODS, ("line 1",)),
    ],
)
def test_a_malformed_trace_names_file_line_and_column(tmp_path, nodes, pods, words):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(nodes)
    (tmp_path / "openb_pod_list_default.csv").write_text(pods)
    refused("demo", "--workload", "openb", "--trace-dir", str(tmp_path), words=words)


def test_a_trace_that_is_no_text_names_the_line(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_bytes(NODES.encode() + b"n\xff,1,1,0,\n")
    refused("demo", "--workload", "openb", "--trace-dir", str(tmp_path), words=("line 3", "UTF-8"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ()),
        ("apiVersion: v1\nkind: Config\n", ()),
        ("just words", ()),
    ],
)
def test_a_kubeconfig_that_does_not_parse_is_named(tmp_path, text, words):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    refused("up", "--kubeconfig", str(file), words=(str(file), *words))


def kubeconfig(file, server: str) -> str:
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: c, user: {token: abc}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n"
    )
    return str(file)


def test_an_unknown_context_is_named(tmp_path):
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:1")
    refused("up", "--kubeconfig", file, "--context", "elsewhere", words=("elsewhere",))


def test_a_server_that_does_not_answer_is_named(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        refused("up", "--kubeconfig", kubeconfig(tmp_path / "k", url), words=(url, "no answer"))


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused("twin", "serve", "--port", str(port), words=(str(port),))


def test_a_malformed_audit_names_the_line(tmp_path):
    file = tmp_path / "audit.jsonl"
    file.write_text('{"rv":1}\n')
    refused("audit", str(file), words=(str(file), "line 1"))


def test_no_arguments_show_the_help_and_are_no_success():
    done = conclave()
    assert done.returncode == 2
    assert "Commands:" in done.stdout


def test_help_and_version_succeed():
    for arguments in (
        ("--help",),
        ("demo", "--help"),
        ("run", "agent", "--help"),
        ("version",),
        ("version", "-o", "json"),
    ):
        done = conclave(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert done.stdout
