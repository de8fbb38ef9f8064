"""Gives the packages the names that they are installed under; everything else is in pyproject.toml.

The folder ``strategies`` is installed as ``aotcheck_strategies``: a user's project may have a module ``strategies`` of
its own. ``.packages`` holds a link for each package, and setuptools takes it for the folder of the sources. So an
editable install is a line in a ``.pth`` file, found by Python's own path finder: there a package comes before a mere
folder of the same name in the working directory. Setuptools' finder for renamed packages would come after it.
"""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
PACKAGES = {"aotcheck": "aotcheck", "aotcheck_strategies": "strategies"}


def link() -> None:
    """Make the links that are missing. A source distribution holds the packages themselves in their place."""
    for name, folder in PACKAGES.items():
        installed = HERE / ".packages" / name
        if not installed.exists():
            installed.parent.mkdir(exist_ok=True)
            installed.unlink(missing_ok=True)  # a link that leads nowhere: the repository was moved
            installed.symlink_to(Path("..") / folder, target_is_directory=True)


link()
setup()
