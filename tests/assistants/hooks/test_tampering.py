"""A running Hub puts settings back whatever was done to them, and ends sessions where it cannot keep them in force."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from msgspec import structs

from remit.assistants.claude_code.settings import ClaudeCodePlanner
from remit.assistants.install.install import install
from remit.assistants.install.plan import InstallTarget
from remit.assistants.monitor.file_restore import MAX_READ
from remit.assistants.monitor.restorer import REPAIRS
from remit.assistants.records import Protections
from remit.ledger.home import open_home
from tests.assistants.hooks.scenes import PROTECTION, Scene, deny_reason, protection
from tests.assistants.protection.places import NEW, wire
from tests.hub.service import receipt_claims, running

OFF = b'{"disableAllHooks": true}'
PATIENCE_S = 20.0


def until(true: Callable[[], Any]) -> None:
    """Wait until something is so, which it must be within seconds."""
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.05)


@contextmanager
def protected(place: Path, **changes: Any) -> Iterator[Scene]:
    """Run a Hub that keeps the settings of Claude Code in a folder in force."""
    folder, home = place / "project", place / "home"
    folder.mkdir()
    plan = ClaudeCodePlanner().plan(
        InstallTarget("local", str(folder), str(place / "user"), version=NEW), wire(PROTECTION)
    )
    with open_home(home) as opened:
        protections = Protections(opened)
        with protections.locked():
            install(protections, protection(folder, version=NEW, **changes), plan, wire(PROTECTION).content())
    with running(home) as hub:
        yield Scene(hub, folder)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with protected(tmp_path) as staged:
        yield staged


def settings_of(scene: Scene) -> Path:
    return scene.folder / ".claude" / "settings.local.json"


def tamper(scene: Scene, data: bytes = OFF, mode: int = 0o444) -> None:
    """Rename another file into the place of the settings, as a permitted command can."""
    new = scene.folder / "new"
    new.write_bytes(data)
    new.chmod(mode)
    new.rename(settings_of(scene))


def link_in(scene: Scene) -> None:
    """Put a file with a second link into the place of the settings."""
    other = scene.folder / "other"
    other.write_bytes(OFF)
    settings_of(scene).unlink()
    settings_of(scene).hardlink_to(other)


WAYS: dict[str, Callable[[Scene], None]] = {
    "read-only": tamper,
    "second link": link_in,
    "large": lambda scene: tamper(scene, OFF + b" " * MAX_READ, 0o644),
}


def in_force(scene: Scene) -> bool:
    try:
        found = json.loads(settings_of(scene).read_bytes())
    except (OSError, ValueError):
        return False
    return PROTECTION in json.dumps(found.get("hooks", {}).get("PreToolUse")) and not found["disableAllHooks"]


def findings(scene: Scene) -> list[dict[str, Any]]:
    """Return what the monitor has signed, each receipt verified by a library of others."""
    tokens = scene.hub.get("/v1/export").json["receipts"]
    ours = [one for one in tokens if jwt.decode(one, options={"verify_signature": False})["tool"] == "remit.keeper"]
    return [receipt_claims(scene.hub, token) for token in ours]


def reasons(scene: Scene) -> list[str]:
    return [claims["reason"] for claims in findings(scene)]


def read(scene: Scene) -> dict[str, Any]:
    return scene.asked("Read", {"file_path": str(scene.folder / "a.py")})


def code_of(scene: Scene, answer: dict[str, Any]) -> str:
    """Return the code of the receipt that a denial names."""
    reason = deny_reason(answer)
    (claims,) = [one for one in scene.receipts() if one["receipt_id"] in reason]
    return str(claims["internal_denial_code"])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_settings_are_put_back_and_a_signed_finding_says_so(scene: Scene, way: Callable[[Scene], None]) -> None:
    assert read(scene) == {}
    way(scene)
    until(lambda: in_force(scene) and findings(scene))
    (claims,) = findings(scene)
    assert (claims["internal_denial_code"], claims["target"]) == ("enforcement_gap", str(settings_of(scene)))
    assert "it was put back" in claims["reason"]
    assert read(scene) == {}


def test_tampering_again_and_again_ends_the_session_and_nothing_the_assistant_says_brings_it_back(scene: Scene) -> None:
    assert read(scene) == {}
    for _ in range(REPAIRS):
        tamper(scene)
        until(lambda: in_force(scene))
    until(lambda: any("sessions were ended (1)" in reason for reason in reasons(scene)))
    assert code_of(scene, read(scene)) == "protection_tampered"
    until(lambda: sum("it was put back" in reason for reason in reasons(scene)) == REPAIRS)
    for event in ("SessionStart", "SessionEnd", "SessionStart"):
        scene.told(event, source="startup", reason="other")
        assert code_of(scene, read(scene)) == "protection_tampered"
    other = Scene(scene.hub, scene.folder, session="another")
    other.told("SessionStart", source="startup")
    assert code_of(other, read(other)) == "protection_tampered"
    assert "Tampered with" in scene.hub.get("/dashboard/sessions").body.decode()


def test_settings_that_cannot_be_put_back_end_the_session_until_a_person_protects_again(scene: Scene) -> None:
    assert read(scene) == {}
    scene.folder.rename(scene.folder.with_name("away"))
    until(lambda: any("sessions were ended (1)" in reason for reason in reasons(scene)))
    assert any("it was not put back" in reason for reason in reasons(scene))
    assert code_of(scene, read(scene)) == "protection_tampered"
    scene.folder.with_name("away").rename(scene.folder)
    with open_home(scene.hub.home) as home:
        protections = Protections(home)
        kept = protections.get(PROTECTION)
        assert kept is not None
        with protections.locked():
            protections.put(structs.replace(kept, generation=kept.generation + 1))
    assert read(scene) == {}


@contextmanager
def started(folder: Path, program: Path, *, deaf: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program named like an assistant in a folder; a deaf one does not end when it is asked to."""
    program.parent.mkdir(parents=True, exist_ok=True)
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else ""
    program.write_text(
        f"import signal, sys\n{ignoring}\nprint('ready', flush=True)\nsys.stdin.read()\n", encoding="utf-8"
    )
    process = subprocess.Popen(
        [sys.executable, str(program)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_processes_of_the_assistant_in_the_folder_are_stopped_where_a_person_has_asked_for_it(tmp_path: Path) -> None:
    claude = tmp_path / "bin" / "claude"
    with (
        protected(tmp_path, on_tamper="stop") as scene,
        started(scene.folder, claude) as hearing,
        started(scene.folder, tmp_path / "deaf" / "claude", deaf=True) as deaf,
        started(tmp_path, claude) as elsewhere,
        started(scene.folder, tmp_path / "bin" / "editor") as other,
    ):
        for _ in range(REPAIRS):
            tamper(scene)
            until(lambda: in_force(scene))
        ended = (hearing.wait(PATIENCE_S), deaf.wait(PATIENCE_S))
        assert ended == (-signal.SIGTERM, -signal.SIGKILL)
        assert (elsewhere.poll(), other.poll()) == (None, None)
        until(lambda: sum("process" in reason for reason in reasons(scene)) == 2)
        said = " ".join(reasons(scene))
        assert f"process {hearing.pid} of claude-code was stopped" in said
        assert f"process {deaf.pid} of claude-code was killed" in said


def test_processes_go_on_where_nobody_has_asked_to_stop_them(scene: Scene, tmp_path: Path) -> None:
    with started(scene.folder, tmp_path / "bin" / "claude") as process:
        for _ in range(REPAIRS):
            tamper(scene)
            until(lambda: in_force(scene))
        until(lambda: any("sessions were ended" in reason for reason in reasons(scene)))
        assert process.poll() is None
