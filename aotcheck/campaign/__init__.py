"""The fuzz loop: blocks of programs run in workers that may die, told as one stream of events."""

from aotcheck.campaign.record.events import Event
from aotcheck.campaign.record.resume import Past
from aotcheck.campaign.record.tally import ExitCode, Tally
from aotcheck.campaign.running.supervisor import Campaign
from aotcheck.campaign.setup.settings import Settings, SettingsError

__all__ = ["Campaign", "Event", "ExitCode", "Past", "Settings", "SettingsError", "Tally"]
