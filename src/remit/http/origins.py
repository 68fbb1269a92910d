"""Which `Origin` may read our answers and ask for changes: extensions of browsers, and pages of this machine.

Keeps this invariant: an origin is taken whole, as browsers write it, or not at all. Nothing is trimmed, decoded or
put into lower case; `null` is nobody. What follows for a request is for `customs.py`.
"""

import re
from typing import Final

__all__ = ["is_local_origin"]

# Only a browser writes these, and for its own extensions alone; what their ids look like is for it to say.
_EXTENSION: Final = rb"(?:chrome|moz)-extension://[A-Za-z0-9-]{1,64}"
_LOOPBACK: Final = rb"http://(?:127\.0\.0\.1|localhost|\[::1\])(?::(?P<port>[1-9][0-9]{0,4}))?"
_ORIGIN: Final = re.compile(rb"|".join((_EXTENSION, _LOOPBACK)))
_PORTS: Final = 2**16


def is_local_origin(origin: bytes) -> bool:
    """Tell whether this is an extension of a browser, or a page that this machine serves to itself."""
    found = _ORIGIN.fullmatch(origin)
    return found is not None and int(found["port"] or 0) < _PORTS
