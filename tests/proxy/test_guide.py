"""The guide to the proxy: its commands run as they stand there, and its table of errors is whole."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docs import build

from remit.server.statuses import STATUSES
from tests.proxy.service import running

GUIDE = (build.ROOT / "docs" / "integrate" / "proxy.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
SHOWN = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)]


def _played(folder: Path, port: int) -> str:
    """Run the commands of the guide in one shell, and return what they print."""
    start, *rest = COMMANDS
    assert start.startswith("remit proxy")
    script = "set -eu\n" + "".join(rest).replace("8443", str(port))
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "REMIT_HOME": str(folder / "home")}
    environment["HOME"] = str(folder)
    done = subprocess.run(
        ["bash"], check=False, input=script, capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _documents(text: str) -> list[Any]:
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        found.append(value)
    return found


@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "openssl", "basenc"))), reason="the guide needs them")
def test_the_commands_of_the_guide_give_what_it_shows(tmp_path: Path) -> None:
    with running(tmp_path / "home") as proxy:
        started, permitted, denied, result, attested, switch = _documents(
            _played(tmp_path, proxy.port).replace("\n", "")
        )
    for shown, told in zip(SHOWN, (started, permitted, denied), strict=False):
        assert shown.keys() == told.keys()
        for name in ("decision", "verdict", "reason", "remedy", "public_denial_reason", "resource_scope", "existing"):
            assert shown.get(name) == told.get(name)
    assert result["verdict"] == "compliant"
    assert (attested["claims"]["state"], attested["claims"]["receipts"]) == ("ended", 3)
    assert switch == {"ok": True, "on": False, "revoked": 0}


def test_the_guide_tells_what_to_do_about_every_error() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", GUIDE, re.MULTILINE)
    told = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert told == {tuple(status) for status in STATUSES.values()} - {
        (401, "hub_auth_required"),
        (401, "hook_secret_wrong"),
        (403, "origin_not_allowed"),
    }
