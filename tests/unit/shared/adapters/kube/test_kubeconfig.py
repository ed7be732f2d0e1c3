"""Kubeconfigs of several files, and what an entry says: the first of a name counts, paths begin at their file."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.kube.kubeconfig import choose
from shared.errors import ConfigError


def written(file: Path, **sections: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(sections))
    return file


def cluster(server: str, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "cluster": {"server": server, **fields}}


CONTEXT = {"name": "main", "context": {"cluster": "c", "user": "u"}}


def test_of_entries_of_one_name_the_first_files_counts_and_files_that_are_missing_are_left_out(tmp_path: Path) -> None:
    first = written(tmp_path / "a", **{"current-context": "main"}, clusters=[cluster("http://first")])
    second = written(
        tmp_path / "b", **{"current-context": "other"}, contexts=[CONTEXT], clusters=[cluster("http://second")],
        users=[{"name": "u", "user": {"token": "t"}}],
    )  # fmt: skip
    chosen = choose(os.pathsep.join([str(tmp_path / "none"), str(first), str(second)]), None)
    assert (chosen.cluster_name, chosen.cluster.text("server")) == ("c", "http://first")
    assert chosen.user is not None
    assert chosen.user.text("token") == "t"


def test_paths_begin_at_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "ca.pem").write_bytes(b"of the file")
    fields = cluster("http://h", **{"certificate-authority": "../ca.pem"})
    file = written(tmp_path / "deep" / "config", **{"current-context": "main"}, contexts=[CONTEXT], clusters=[fields])
    assert choose(str(file), None).cluster.material("certificate-authority") == b"of the file"


def test_data_in_the_kubeconfig_comes_before_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(b"of the field").decode()
    fields = cluster("http://h", **{"certificate-authority-data": data, "certificate-authority": "/nonexistent"})
    file = written(tmp_path / "config", **{"current-context": "main"}, contexts=[CONTEXT], clusters=[fields])
    assert choose(str(file), None).cluster.material("certificate-authority") == b"of the field"


def test_a_field_of_another_type_is_named_without_its_value(tmp_path: Path) -> None:
    users = [{"name": "u", "user": {"token": 7_777_777}}]
    file = written(
        tmp_path / "config", **{"current-context": "main"}, contexts=[CONTEXT], clusters=[cluster("http://h")],
        users=users,
    )  # fmt: skip
    user = choose(str(file), None).user
    assert user is not None
    with pytest.raises(ConfigError, match=r"users\[u\]\.user\.token: int where text belongs; fix this field") as caught:
        user.text("token")
    assert "7777777" not in str(caught.value)


def test_a_user_that_is_not_there_is_nobody_and_a_context_that_is_not_asked_for_may_be_anything(tmp_path: Path) -> None:
    broken = {"name": "broken", "context": "no mapping"}
    file = written(
        tmp_path / "config", **{"current-context": "main"}, contexts=[broken, CONTEXT], clusters=[cluster("http://h")]
    )
    assert choose(str(file), None).user is None
    with pytest.raises(ConfigError, match=r"contexts\[broken\]: Expected key context"):
        choose(str(file), "broken")
