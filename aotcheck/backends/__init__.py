"""The registry of backends: compiled paths on which programs run.

A backend takes a function and returns the compiled one. It says what it does not promise, so that the oracle can leave
that out *and count what it left out*.
"""

from aotcheck.backends.backend import EVERY_PROMISE, Backend, Promise
from aotcheck.backends.errors import (
    BackendError,
    BackendUnavailableError,
    DeviceUnavailableError,
    ExpectationsError,
    UnknownBackendError,
)
from aotcheck.backends.examples import with_examples
from aotcheck.backends.expectations import EVERYTHING, Expectations, promises_named
from aotcheck.backends.foreign import PACKAGES
from aotcheck.backends.registry import NAMES, recorded, require_device, resolve

__all__ = [
    "EVERYTHING",
    "EVERY_PROMISE",
    "NAMES",
    "PACKAGES",
    "Backend",
    "BackendError",
    "BackendUnavailableError",
    "DeviceUnavailableError",
    "Expectations",
    "ExpectationsError",
    "Promise",
    "UnknownBackendError",
    "promises_named",
    "recorded",
    "require_device",
    "resolve",
    "with_examples",
]
