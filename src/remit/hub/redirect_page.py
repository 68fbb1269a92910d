"""The file that redirects a browser to the dashboard, with the token in the URL.

Invariants: the token is in a file that only its owner can read, and not in the arguments of a process, which every user
of the machine can read. The file is removed when the Hub stops.
"""

from html import escape
from pathlib import Path
from typing import Final

from remit.errors import StateMissing
from remit.ledger.home import Home
from remit.server.run_files import FOLDER

OPENING_FILE: Final = "open.html"
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>Remit</title>
<p><a href="{0}">The dashboard of Remit</a></p>
"""


def write_redirect_page(home: Home, address: str) -> str:
    """Write a page that redirects to `address`, and return its `file:` URL."""
    with home.folder(FOLDER) as folder:
        folder.replace(OPENING_FILE, _PAGE.format(escape(address)).encode())
        return Path(folder.path_of(OPENING_FILE)).as_uri()


def remove_redirect_page(home: Home) -> None:
    """Remove the page if it exists."""
    try:
        folder = home.folder(FOLDER, create=False)
    except StateMissing:
        return
    with folder:
        folder.remove(OPENING_FILE)
