"""What the meta kernels gave so far, remembered for the life of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from aotcheck.autograd.ir.trace import Geometry

_METADATA_LIMIT = 20_000


class MetadataCache:
    """What each op gives for each set of argument geometries, so that its (slow) meta kernel runs once per process.

    ``corrections`` hold strides that real kernels were seen to give where the meta kernel says otherwise; of what is
    ``settled`` they have been asked, after a trace that raised.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()  # with the key itself
        self._lock = threading.Lock()
        self.find: Callable[[Any], tuple[Any, Any] | None] = self._known.get
        """The key under which something was put that is equal to a key, for who keeps it, and that; or None."""
        self.corrections: dict[Any, tuple[Geometry, ...]] = {}
        self.settled: set[Any] = set()

    def get(self, key: Any) -> Any:
        """What was put under ``key``, or None."""
        found = self._known.get(key)
        return None if found is None else found[1]

    def put(self, key: Any, value: Any) -> None:
        """Remember ``value`` for ``key``; what was put first is forgotten once there are too many."""
        with self._lock:
            self._known[key] = key, value
            if len(self._known) > _METADATA_LIMIT:
                self._known.popitem(last=False)

    def correct(self, key: Any, value: Any) -> None:
        """From now on the op gives ``value`` for ``key``, as a real run of it did."""
        self.put(key, value)
        self.corrections[key] = value

    def settle(self, keys: Iterable[Any]) -> None:
        """Real kernels have been asked for these."""
        with self._lock:
            if len(self.settled) > _METADATA_LIMIT:
                self.settled = set()
            self.settled = self.settled.union(keys)


METADATA = MetadataCache()
