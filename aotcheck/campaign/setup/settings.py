"""The settings of a campaign."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from aotcheck.backends import EVERYTHING, Expectations

BLOCK_SIZE = 25
"""Programs in a block. Part of what makes a campaign reproducible: changing it changes every program."""


class SettingsError(Exception):
    """The campaign cannot be started as asked. The message is one line, meant for the user."""


@dataclass(frozen=True)
class Settings:
    """A campaign.

    Args:
        strategy: ``module:attribute`` of a strategy of programs, or of a function without arguments that returns one; a
            name, since workers import it themselves and this layer does not know strategies.
        backend: as ``backends.resolve`` takes it.
        device: as ``torch.device`` takes it.
        seed: with the number of a block it decides the block's programs.
        examples: how many programs; None for no limit.
        seconds: how long; None for no limit.
        jobs: how many worker processes.
        timeout: seconds that one program may take on all its runs together.
        memory: bytes of resident memory that a worker may take.
        folder: the run's folder, ``reports/<run>``.
        first_block: the first block to run.
        minimize_seconds: how long findings may be minimized once all programs have run; 0 to leave that out.
        reports: for how many signatures, the first by rank, a report that can be posted is written.
        script_seconds: how long the first scripts of coarse keys may run; None for a tenth of the run's time.
        inspection: as ``minimize.Subject`` takes it.
        corpus: the folder of known bugs, if there is one.
        expectations: what is not expected of the backend, as ``backends.recorded`` gives it.
        remembered: a folder of more bugs, which nights have told; see :mod:`aotcheck.campaign.nightly.remembered`.
        baselines: backends whose differences are no findings, see :mod:`aotcheck.campaign.running.baseline`.
    """

    strategy: str
    backend: str
    device: str
    seed: int
    examples: int | None
    seconds: float | None
    jobs: int
    timeout: float
    memory: int
    folder: Path
    first_block: int = 0
    minimize_seconds: float = 0.0
    reports: int = 0
    script_seconds: float | None = None
    inspection: str = ""
    corpus: Path | None = None
    expectations: Expectations = EVERYTHING
    baselines: tuple[str, ...] = ()
    remembered: Path | None = None

    @property
    def findings(self) -> Path:
        """Where the scripts of findings are."""
        return self.folder / "findings"

    @property
    def shared(self) -> Path:
        """Where the scripts of what baselines share are."""
        return self.folder / "shared"

    @property
    def signatures(self) -> Path:
        """Where the minimized programs are, one for each signature."""
        return self.folder / "signatures"

    @property
    def bugs(self) -> Path:
        """Where the reports are that can be posted, each under the name of its minimized program."""
        return self.folder / "bugs"

    @property
    def logs(self) -> Path:
        """Where the output of workers that died is, one for each finding of a death."""
        return self.folder / "logs"

    @property
    def journals(self) -> Path:
        """Where workers note what they are doing; removed at the end."""
        return self.folder / "journal"

    def make_folders(self) -> None:
        """Create the run's folders.

        Raises:
            SettingsError: they cannot be written.
        """
        try:
            shutil.rmtree(self.journals, ignore_errors=True)  # of a supervisor that was killed
            for folder in (self.findings, self.journals):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / ".writable"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise SettingsError(f"cannot write to '{self.folder}': {error.strerror}; choose another --out") from error
