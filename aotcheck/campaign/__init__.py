"""The fuzz loop: blocks of programs run in workers that may die, told as one stream of events."""

from aotcheck.campaign.events import Event
from aotcheck.campaign.resume import Past
from aotcheck.campaign.settings import Settings, SettingsError
from aotcheck.campaign.supervisor import Campaign
from aotcheck.campaign.tally import ExitCode, Tally

__all__ = ["Campaign", "Event", "ExitCode", "Past", "Settings", "SettingsError", "Tally"]
