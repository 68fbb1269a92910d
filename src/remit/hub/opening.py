"""The file that sends a browser to the dashboard, token and all.

Keeps these invariants: the token stands in no argument of a process, which every user of the machine can read, but in a
file that is its owner's alone; and the file is gone with the Hub whose token it holds.
"""

from html import escape
from pathlib import Path
from typing import Final

from remit.errors import StateMissing
from remit.ledger.home import Home
from remit.server.record import FOLDER

__all__ = ["OPENING_FILE", "clear_opening", "write_opening"]

OPENING_FILE: Final = "open.html"
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>Remit</title>
<p><a href="{0}">The dashboard of Remit</a></p>
"""


def write_opening(home: Home, address: str) -> str:
    """Return the URL of a file that sends a browser on to `address`."""
    with home.folder(FOLDER) as folder:
        folder.replace(OPENING_FILE, _PAGE.format(escape(address)).encode())
        return Path(folder.path_of(OPENING_FILE)).as_uri()


def clear_opening(home: Home) -> None:
    """Remove the file, if there is one."""
    try:
        folder = home.folder(FOLDER, create=False)
    except StateMissing:
        return
    with folder:
        folder.remove(OPENING_FILE)
