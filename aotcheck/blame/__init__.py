"""Which stage of the project's own AOT autograd makes a program differ from eager."""

from aotcheck.blame.describe import describe, describe_step
from aotcheck.blame.ladder import Blame, Judged, Rung, Standing, blame
from aotcheck.blame.timeline import Wrong

__all__ = ["Blame", "Judged", "Rung", "Standing", "Wrong", "blame", "describe", "describe_step"]
