"""An export, read to its end and dropped as it comes, while the memory of the server is watched."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Final
from urllib.parse import urlsplit

from bench.results import MIB, Export
from bench.servers import Target, resident

__all__ = ["exported"]

PATH: Final = "/v1/export"
PIECE: Final = 2**18
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.1


def exported(target: Target, form: str, receipts: int) -> Export:
    """Return what an export costs; `form` is the encoding that is asked for, `receipts` how many there are about."""
    before = highest = resident(target.server.pid)
    begun = time.perf_counter()
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(lambda: sum(map(len, _pieces(target, form))))
        while not reading.done():
            highest = max(highest, resident(target.server.pid))
            time.sleep(LOOK_S)
    return Export(
        form=form,
        receipts=receipts,
        megabytes=reading.result() / 1e6,
        seconds=time.perf_counter() - begun,
        mebibytes_before=before / MIB,
        mebibytes_grown=(highest - before) / MIB,
    )


def _pieces(target: Target, form: str) -> Iterator[bytes]:
    """Yield the export as it comes; one that breaks off raises."""
    connection = HTTPConnection(urlsplit(target.server.url).netloc, timeout=PATIENCE_S)
    try:
        connection.request("GET", PATH, headers={**target.headers, "Accept-Encoding": form})
        response = connection.getresponse()
        if response.status != 200 or response.getheader("Content-Encoding", "identity") != form:
            raise RuntimeError(f"{PATH} as {form}: answer {response.status}")
        while piece := response.read(PIECE):
            yield piece
    finally:
        connection.close()
