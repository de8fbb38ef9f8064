"""Which tests fail on which torch for a reason that is not ours: what known.toml says."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("known.toml")


class KnownError(Exception):
    """An entry of known.toml cannot be read."""


@dataclass(frozen=True)
class Known:
    """Tests that fail on some torch for a known reason.

    Args:
        id: which tests: ``module::name``, where ``*`` stands for anything.
        versions: on which torch.
        reason: why they fail there, a line.
    """

    id: str
    versions: tuple[str, ...]
    reason: str

    def explains(self, test: str, version: str) -> bool:
        """Whether this says why ``test`` fails on this torch."""
        return version in self.versions and bool(re.fullmatch(re.escape(self.id).replace(r"\*", ".*"), test))


def read_known(path: Path = PATH) -> tuple[Known, ...]:
    """The entries of the file.

    Raises:
        KnownError: one of them lacks something, or has what is not known.
    """
    try:
        return tuple(map(_entry, tomllib.loads(path.read_text(encoding="utf-8")).get("test", ())))
    except (tomllib.TOMLDecodeError, KnownError) as error:
        raise KnownError(f"{path}: {error}") from error


def _entry(found: dict[str, Any]) -> Known:
    match found:
        case {"id": str(test), "versions": [*versions], "reason": str(reason), **more} if reason and not more:
            return Known(test, tuple(map(str, versions)), reason)
        case _:
            raise KnownError(f"an entry has id, versions and reason, and nothing else; this one is {found}")
