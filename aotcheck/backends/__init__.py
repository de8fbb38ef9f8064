"""The registry of compiled paths that programs are run on.

A backend takes a function and returns a function; what it does not promise it says, so that the oracle can leave it out
*and count what it left out*.
"""

from aotcheck.backends.backend import Backend, Promise
from aotcheck.backends.errors import BackendError, BackendUnavailableError, DeviceUnavailableError, UnknownBackendError
from aotcheck.backends.registry import NAMES, require_device, resolve
from aotcheck.backends.variants import SPELLED

__all__ = [
    "NAMES",
    "SPELLED",
    "Backend",
    "BackendError",
    "BackendUnavailableError",
    "DeviceUnavailableError",
    "Promise",
    "UnknownBackendError",
    "require_device",
    "resolve",
]
