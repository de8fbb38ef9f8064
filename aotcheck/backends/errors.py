"""Why a backend or a device cannot be used; each message is one line that says what to do."""


class BackendError(Exception):
    """A backend or device that was asked for cannot be used. The message is one line, meant for the user."""


class UnknownBackendError(BackendError):
    """No backend of that name."""


class BackendUnavailableError(BackendError):
    """The backend is known, but something that it needs is missing here."""


class DeviceUnavailableError(BackendError):
    """The device is not there, or torch does not know it."""


class ExpectationsError(BackendError):
    """A run is told to leave out something that is no promise or no kind of difference."""
