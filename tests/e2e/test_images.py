"""The images as an engine builds them: nobody's user, nothing that a service does not run, and not too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.engine import BASE, IMAGES, TAG, build_images, call, inspect, missing

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADDED_MB = dict.fromkeys(("agent", "coordinator", "binder", "autoscaler", "jobs", "rebalancer"), 180) | {"sensor": 40}
"""What an image may add to its base, in 10^6 bytes."""
PROBE = """
import importlib.util, json, os, pathlib, shutil, sysconfig
packages = pathlib.Path(sysconfig.get_path("purelib"))
tests = [str(p) for p in pathlib.Path("/opt").rglob("tests") if p.is_dir() and "torch" not in p.parts]
print(json.dumps({
    "user": [os.getuid(), os.getgid()],
    "compilers": [n for n in ("cc", "gcc", "g++", "clang", "ld", "make", "go", "rustc") if shutil.which(n)],
    "installers": [n for n in ("pip", "setuptools", "wheel", "uv") if importlib.util.find_spec(n)],
    "torch": importlib.util.find_spec("torch") is not None,
    "tests": tests + [str(p) for p in packages.glob("test*") if not p.name.startswith("testing")],
    "houses": [n for n in ("lab", "twin") if (packages / n).is_dir()],
    "services": sorted(p.name for p in (packages / "services").glob("*") if p.is_dir() and p.name != "__pycache__"),
}))
"""
SERVICES = {"agent", "autoscaler", "binder", "coordinator", "jobs", "rebalancer", "sensor"}
HOUSES = {"cli": ["lab", "twin"], "twin": ["twin"]}
"""What an image has beside the mesh's own wheel."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def images() -> None:
    if missing():
        pytest.skip(missing())
    await build_images()


async def probe(image: str, *options: str, path: str = "/usr/bin") -> dict[str, Any]:
    """What a container of the image finds inside. ``path``: where it looks for commands too."""
    found = f"PATH=/opt/conclave/bin:/usr/local/bin:/usr/bin:/bin:{path}"
    command = ("docker", "run", "--rm", "--network", "none", "--read-only", "--env", found, *options)
    answer: dict[str, Any] = json.loads(await call(*command, f"conclave-{image}:{TAG}", "python3", "-c", PROBE))
    return answer


@pytest.mark.parametrize("image", [image for image in IMAGES if image != "learner"])
async def test_an_image_has_its_service_and_no_torch_compiler_installer_or_test(image: str) -> None:
    found = await probe(image)
    assert found["user"] == [65532, 65532]
    assert (found["torch"], found["compilers"], found["installers"], found["tests"]) == (False, [], [], [])
    assert set(found["services"]) & SERVICES == {image} & SERVICES
    assert found["houses"] == HOUSES.get(image, [])


@pytest.fixture
def intruders(tmp_path: Path) -> Path:
    """A folder with a compiler, an installer and tests."""
    tmp_path.chmod(0o755)
    (tmp_path / "tests").mkdir()
    for name in ("cc", "pip.py"):
        (tmp_path / name).touch(0o755)
    return tmp_path


async def test_what_must_not_be_there_is_found_when_it_is(intruders: Path) -> None:
    options = ("--volume", f"{intruders}:/opt/more:ro", "--env", "PYTHONPATH=/opt/more")
    found = await probe("agent", *options, path="/opt/more")
    assert (found["compilers"], found["installers"], found["tests"]) == (["cc"], ["pip"], ["/opt/more/tests"])


async def test_torch_is_found_where_it_is() -> None:
    found = await probe("learner")
    assert (found["torch"], found["houses"]) == (True, ["lab", "twin"])
    assert (found["user"], found["compilers"], found["installers"]) == ([65532, 65532], [], [])


@pytest.mark.parametrize("image", ADDED_MB)
async def test_an_image_adds_no_more_than_allowed_to_its_base(image: str) -> None:
    sizes = [(await inspect("image", name))["Size"] for name in (f"conclave-{image}:{TAG}", BASE)]
    assert (sizes[0] - sizes[1]) / 1e6 <= ADDED_MB[image]


@pytest.mark.parametrize("image", [image for image in IMAGES if image != "cli"])
async def test_an_image_knows_how_to_ask_whether_its_service_is_well(image: str) -> None:
    config = (await inspect("image", f"conclave-{image}:{TAG}"))["Config"]
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "healthcheck"]
    # nobody listens in a container that does nothing: the check must say so
    command = ("docker", "run", "--rm", "--network", "none", "--read-only", f"conclave-{image}:{TAG}")
    with pytest.raises(AssertionError, match=r"exit code 1\n127\.0\.0\.1:\d+: .*refused"):
        await call(*command, *config["Healthcheck"]["Test"][1:])
