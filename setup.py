"""What pyproject.toml cannot say: the wheel carries registry/ and plotting/, and needs what requirements.txt lists."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = ("registry", "plotting")  # testbed.data.locate finds them in the package as _registry and _plotting


class BuildWithFolders(build_py):
    """Copies the two folders into the package that is built. An editable install uses those of the clone."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in CARRIED:
            target = Path(self.build_lib, "testbed", f"_{name}")
            # A file that is gone from the clone must not come back from an earlier build.
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(name, target, ignore=shutil.ignore_patterns("__pycache__"))


def requirements() -> list[str]:
    """The packages in requirements.txt, without comments and without its `-e .`, which is this package."""
    lines = Path("requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


setup(install_requires=requirements(), cmdclass={"build_py": BuildWithFolders})
