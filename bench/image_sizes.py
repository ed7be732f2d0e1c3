"""What each image adds to its base: installs its lock and our wheels into a folder as ``images/install.sh`` does.

    python bench/image_sizes.py [IMAGE ...]
    python bench/image_sizes.py --engine TAG BASE [IMAGE ...]      of images that a Docker engine has built on BASE

Without an engine it needs the package index, or a folder of wheels known to pip. The learner is left out unless named:
torch is large.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ("agent", "coordinator", "binder", "sensor", "autoscaler", "jobs", "rebalancer", "twin", "cli", "etcd")
OURS = {
    "etcd": (), "twin": ("conclave", "conclave_twin"), "cli": ("conclave", "conclave_twin", "conclave_lab"),
    "learner": ("conclave", "conclave_twin", "conclave_lab"),
}  # fmt: skip
"""Our own wheels in an image; the others have the mesh's alone."""


def pip(*words: str) -> None:
    """Run pip; its error ends this program."""
    subprocess.run([sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], check=True)


def size_bytes(folder: Path) -> int:
    """Of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(image: str, wheels: Path, folder: Path) -> int:
    """Bytes of one image's packages, byte code included."""
    lock = ROOT / "images" / f"{image}.lock"
    pip("install", "--require-hashes", "--no-deps", "--no-compile", "-r", str(lock), "--target", str(folder))
    for name in OURS.get(image, ("conclave",)):
        wheel = next(wheels.glob(f"{name}-*.whl"))
        pip("install", "--no-deps", "--no-index", "--no-compile", "--upgrade", str(wheel), "--target", str(folder))
    for other in (folder / "services").glob("*/"):
        if other.name not in ("cli", image):
            shutil.rmtree(other)
    for tests in [path for path in folder.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=False, stdout=subprocess.DEVNULL)
    return size_bytes(folder)


def engine_bytes(image: str) -> int:
    """What the engine says of an image; its error ends this program."""
    command = ["docker", "image", "inspect", "--format", "{{.Size}}", image]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print one line per image."""
    if sys.argv[1:2] == ["--engine"]:
        tag, base, *images = sys.argv[2:]
        for image in images or IMAGES:
            added = engine_bytes(f"conclave-{image}:{tag}") - engine_bytes(base)
            print(f"{image}: {added / 1e6:.0f} MB", flush=True)
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        pip("wheel", "--no-deps", *(str(ROOT / house) for house in (".", "twin", "lab")), "-w", place)
        for image in sys.argv[1:] or IMAGES:
            folder = root / image
            print(f"{image}: {measure(image, root, folder) / 2**20:.0f} MiB", flush=True)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
