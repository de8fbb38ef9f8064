"""What the meta kernels gave so far, remembered for the life of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from aotcheck.autograd.ir.trace import Geometry

_METADATA_LIMIT = 20_000


class MetadataCache:
    """What each op gives for each set of argument geometries, so that its (slow) meta kernel runs once per process.

    ``corrections`` hold strides that real kernels were seen to give where the meta kernel says otherwise; of what is
    ``settled`` they have been asked, after a trace that raised.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        self.corrections: dict[Any, tuple[Geometry, ...]] = {}
        self.settled: set[Any] = set()

    def get(self, key: Any) -> Any:
        """What was put under ``key``, or None."""
        return self._known.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Remember ``value`` for ``key``; what was put first is forgotten once there are too many."""
        with self._lock:
            self._known[key] = value
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
