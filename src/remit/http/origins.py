"""Which `Origin` may read our answers and ask for changes: browser extensions, and pages of this machine over HTTP.

Invariant: an origin is compared whole, as browsers write it. Nothing is trimmed, decoded or put into lower case. `null`
and loopback names over HTTPS are refused. `customs.py` applies this to requests.
"""

import re
from typing import Final

from remit.http.hosts import LOOPBACK_AUTHORITY

__all__ = ["is_local_origin"]

# Only a browser writes these, and for its own extensions alone; what their ids look like is for it to say.
_EXTENSION: Final = rb"(?:chrome|moz)-extension://[A-Za-z0-9-]{1,64}"
_ORIGIN: Final = re.compile(_EXTENSION + rb"|http://" + LOOPBACK_AUTHORITY.encode("ascii"))


def is_local_origin(origin: bytes) -> bool:
    """Tell whether this is a browser extension, or a page that this machine serves to itself."""
    return _ORIGIN.fullmatch(origin) is not None
