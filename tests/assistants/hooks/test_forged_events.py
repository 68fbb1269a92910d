"""No sequence of hook events widens or refills a session, whoever sends them, in whatever order.

Each sequence is drawn from a seed: starts, ends, calls, outcomes and subagents of a few sessions, with folders of every
kind; delegations; restarts of the Hub; and folders that are renamed, removed or replaced by links in between. The Hub's
own application answers them, over a real ledger. A plain model says what must hold: a call is permitted only for what
really lies in the folder that the session was first started in, and at most as often as its mission says.
"""

import asyncio
import hashlib
import itertools
import json
import os
import random
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from msgspec import structs

from remit.assistants.handlers import HookHandlers
from remit.assistants.records import Protection, Protections
from remit.assistants.routes import hook_routes
from remit.claims.mission import escape_path
from remit.errors import RemitError
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.sessions import GetSession, StartSession
from remit.governor.statements import RecordStatement
from remit.hub.auth import HUB_BROWSER_POLICY, HubAuthenticator
from remit.ledger.home import open_home
from remit.policy.call import ToolCall
from remit.server.application import Application
from remit.server.hook_tokens import hook_token
from remit.wiring import Service, build_service
from tests.assistants.hooks.scenes import protection
from tests.server.asking import HOST, Asked, Witness

# The profile decides: `--hypothesis-profile=thorough` asks for thousands of runs.
THOROUGH: Final = settings.default is not None and settings.default.max_examples > 1000
SEQUENCES: Final = 20_000 if THOROUGH else 120
PARTS: Final = 4
EVENTS: Final = 9
LIMIT: Final = 2
HUB_TOKEN: Final = "the-token-of-the-hub"
EVERYWHERE, OLD, HERE = "prot-00000000000a", "prot-00000000000b", "prot-00000000000c"
NAMES: Final = ("a", "b", "a*", "[ab]", "**", "?", "a:b", "x y", "é", "a[[]b")
ODD: Final = (
    "",
    ".",
    "..",
    "relative",
    "/",
    "/**",
    "/*",
    "//",
    "~",
    "$HOME",
    "/\n",
    "/\udcff",
    "/" + "x/" * 1500,
    "/etc",
)


@dataclass
class Told:
    """What the model knows of a session of the assistant."""

    protection: str
    secret: str
    # None until its first event; nothing where that named no folder to work in.
    folder: str | None = None
    # The secret that its first event has shown.
    bound: str = ""
    permits: set[str] = field(default_factory=set)


class World:
    """A Hub in this process, over a home, and a folder in which everything happens."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.base = place / "work"
        self.home = place / "home"
        self.fixed = self.base / "fixed"
        self.fixed.mkdir(parents=True)
        with open_home(self.home) as opened:
            protections = Protections(opened)
            for kept in self.protections():
                protections.put(kept)
        self.loop = asyncio.new_event_loop()
        self.count = itertools.count()
        self.permitted = self.denied = 0
        self.start()
        # The session of Remit's own checks is there from the beginning.
        self.service.governor.run(RecordStatement("remit.test", "all", {}, "", "it begins"))

    def protections(self) -> Iterator[Protection]:
        """Return one for wherever the assistant is started, one of the first release, and one for a folder."""
        limits = {"max_tool_calls": LIMIT, "allowed_tools": ["Read", "Write", "Bash", "Agent"]}
        anywhere = protection(None, level="user", mission=limits)
        yield structs.replace(anywhere, id=EVERYWHERE)
        yield structs.replace(anywhere, id=OLD, generation=0, form="http")
        yield structs.replace(protection(self.fixed, mission=limits), id=HERE)

    def start(self) -> None:
        """Start the Hub."""
        self.service: Service = build_service(self.home, user_home=str(self.place))
        doors = HubAuthenticator(HUB_TOKEN, clock=time.monotonic, wall=time.time)
        desk = HookHandlers(self.service.governor, self.service.protections, str(self.place), doors.prove)
        self.application = Application(
            hook_routes(desk), hosts=frozenset((HOST,)), authenticator=doors, body_bytes=1 << 20, telemetry=Witness(),
            browser_policy=HUB_BROWSER_POLICY,
        )  # fmt: skip

    def started(self) -> int:
        """Return how many sessions of assistants were started."""
        return self.service.governor.context.reader.source_count()

    def stop(self) -> None:
        """Stop the Hub."""
        self.service.close()

    def forget(self) -> None:
        """Have the Hub forget what it knows, as a restart does."""
        context = self.service.governor.context
        for known in (context.sources, context.passports, context.heads, context.holders):
            known.clear()

    def tell(self, told: Told, secret: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to an event."""
        token = hook_token(HUB_TOKEN, told.protection)
        headers = {b"host": HOST, b"content-type": b"application/json", b"authorization": f"Bearer {token}".encode()}
        headers |= {b"x-remit-session": secret.encode()} if secret else {}
        return dict(json.loads(self.loop.run_until_complete(self._asked(told.protection, headers, body))))

    async def _asked(self, name: str, headers: Mapping[bytes, bytes], body: Mapping[str, Any]) -> bytes:
        # As JSON is sent: a name that is not UTF-8 is half a character in it.
        parts = (json.dumps(body).encode(),)
        asked = Asked(self.application, "POST", f"/v1/hooks/claude-code/{name}", headers, parts, peer="", holder="")
        await self.application(asked)
        head, _, content = asked.wire.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return content


@dataclass
class Sequence:
    """One sequence of events, and what the model knows after each."""

    world: World
    chance: random.Random
    sessions: dict[str, Told] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def play(self) -> None:
        """Do what the seed says."""
        self.number = next(self.world.count)
        self.root = self.world.base / f"{self.number}"
        for name in ("a/sub", "b/sub", *NAMES[2:]):
            (self.root / name).mkdir(parents=True)
        (self.root / "link").symlink_to(self.chance.choice(["a", "..", "/", "b/sub", str(self.world.place)]))
        kinds = self.chance.choices([EVERYWHERE, OLD, HERE], [5, 3, 1], k=2)
        for index, kind in enumerate(kinds):
            secret = "" if kind == OLD and self.chance.random() < 0.5 else f"{self.chance.getrandbits(256):064x}"
            self.sessions[f"session {self.number} {index}"] = Told(kind, secret)
        try:
            # Most begin as they should; the others begin with anything.
            for name, told in self.sessions.items():
                if self.chance.random() < 0.8:
                    cwd = str(self.root / self.chance.choice(NAMES))
                    body = {"session_id": name, "hook_event_name": "SessionStart", "cwd": cwd, "source": "startup"}
                    self.said.append(f"{told.protection} begins {body}")
                    self.tell(told, told.secret, body)
            for _ in range(EVENTS):
                self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0](self)
        except BaseException as error:
            error.add_note("\n".join(self.said))
            raise
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def path(self) -> str:
        """Return a path of any kind, most of them into the folder of this sequence."""
        kind = self.chance.random()
        if kind < 0.15:
            return self.chance.choice(ODD)
        if kind < 0.55:
            # What a session may well be started in, and touch.
            return str(self.root / self.chance.choice(NAMES) / self.chance.choice(("", "", "file", "sub", "..")))
        names = [*NAMES, "link", "..", "sub", "*", "**", "", ".", "new"]
        inside = "/".join(self.chance.choices(names, k=self.chance.choice((0, 1, 1, 2, 3))))
        start = self.chance.choices([str(self.root), str(self.world.fixed), str(self.world.base), ""], [8, 1, 1, 1])[0]
        return f"{start}/{inside}" if start else inside

    def event(self, kind: str, **members: Any) -> tuple[str, Told, str, dict[str, Any]]:
        """Return an event of a session; some do not show its secret."""
        name, told = self.chance.choice(list(self.sessions.items()))
        secret = told.secret
        if secret and self.chance.random() < 0.15:
            secret = self.chance.choice(["", "0" * 64])
        agent = {"agent_id": f"agent{self.chance.randrange(2)}", "agent_type": "Explore"}
        who = agent if kind == "SubagentStop" or (kind.endswith("Use") and self.chance.random() < 0.3) else {}
        cwd = self.path()
        if kind == "PreToolUse" and told.folder and self.chance.random() < 0.7:
            cwd = told.folder
            members = self.aimed(told.folder, members)
        body = {"session_id": name, "hook_event_name": kind, "cwd": cwd, **who, **members}
        self.said.append(f"{told.protection} {'right' if secret == told.secret else 'wrong'} secret {body}")
        return name, told, secret, body

    def aimed(self, folder: str, members: dict[str, Any]) -> dict[str, Any]:
        """Return a call that is about a path in a folder, now and then."""
        if self.chance.random() < 0.4:
            return members
        target = f"{folder}/{self.chance.choice(('file', 'sub/x', '*', '../a', 'link'))}"
        key = "file_path" if "file_path" in members["tool_input"] else "command"
        said = target if key == "file_path" else f"rm -rf -- {shlex.quote(target)}"
        return members | {"tool_input": members["tool_input"] | {key: said}, "target": target}

    def tell(self, told: Told, secret: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send an event, and note the folder if it is the first of its session."""
        folder = str(self.world.fixed) if told.protection == HERE else ""
        if told.protection != HERE and body["hook_event_name"] == "SessionStart":
            folder = self.real(body["cwd"])
        before = self.world.started()
        answer = self.world.tell(told, secret, body)
        if told.folder is None and self.world.started() > before:
            told.folder, told.bound = folder, secret
        return answer

    def real(self, cwd: str) -> str:
        """Return the folder that a start names, if it is one in which the sequence plays."""
        if not cwd.startswith("/"):
            return ""
        with suppress(OSError, ValueError):
            found = os.path.realpath(cwd, strict=True)
            if Path(found).is_dir() and found.startswith(f"{self.world.place}/"):
                return found
        return ""

    def start(self) -> None:
        """A session of the assistant starts, or is said to."""
        _, told, secret, body = self.event("SessionStart", source="startup")
        self.tell(told, secret, body)

    def end(self) -> None:
        """A session ends, or is said to."""
        _, told, secret, body = self.event("SessionEnd", reason="other")
        self.tell(told, secret, body)

    def end_agent(self) -> None:
        """A subagent ends, or is said to."""
        _, told, secret, body = self.event("SubagentStop")
        self.tell(told, secret, body)

    def outcome(self) -> None:
        """The outcome of a call comes that nobody may have asked for."""
        call = {"tool_name": "Read", "tool_input": {"file_path": self.path()}, "tool_response": 1, "tool_use_id": "u"}
        _, told, secret, body = self.event("PostToolUse", **call)
        self.tell(told, secret, body)

    def call(self) -> None:
        """A call is asked for."""
        target, name = self.path(), f"toolu_{next(self.world.count)}"
        tool, given = self.chance.choice([
            ("Read", {"file_path": target}),
            ("Write", {"file_path": target, "content": ""}),
            ("Bash", {"command": f"rm -rf -- {shlex.quote(target)}"}),
            ("Bash", {"command": f"cat -- {shlex.quote(target)}"}),
        ])  # fmt: skip
        _, told, secret, body = self.event("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=name)
        answer = self.tell(told, secret, body)
        if answer != {}:
            self.world.denied += 1
            return
        self.world.permitted += 1
        assert told.bound in ("", secret), "an event without the secret of its session is not permitted"
        self.hold(told, body.get("target", target), body["cwd"], name)

    def hold(self, told: Told, target: str, cwd: str, name: str) -> None:
        """Hold that a permitted call stays in the first folder of its session, and within its limit."""
        told.permits.add(name)
        assert len(told.permits) <= LIMIT, "more calls were permitted than the mission has"
        if not target:
            return  # a command on no file: nothing is touched
        assert told.folder, "a session without a folder may touch nothing"
        # Where no folder is told, relative paths start at that of the session.
        real = os.path.realpath(Path(cwd or told.folder, target))
        assert real == told.folder or real.startswith(f"{told.folder}/"), f"{real} is outside of {told.folder}"

    def delegate(self) -> None:
        """A delegate is asked for, with a scope of any kind, and makes a call if there is one."""
        context, run = self.world.service.governor.context, self.world.service.governor.run
        told = self.chance.choice(list(self.sessions.values()))
        end = f":{hashlib.sha256(told.bound.encode()).hexdigest()}"
        lead = next((name for key, name in context.sources.items() if key.endswith(end)), "")
        if not lead:
            return
        target, name = self.path(), f"delegate_{next(self.world.count)}"
        with suppress(RemitError, ValueError):
            parent = run(GetSession(lead)).passport.mission
            scope = self.chance.choice([target, escape_path(target), f"{target}/**", "**", *parent.resource_scope])
            narrowed = structs.replace(
                parent,
                resource_scope=(scope,),
                max_tool_calls=1,
                cwd=self.chance.choice([None, target if target.startswith("/") else None]),
            )
            token = run(Delegate(lead, narrowed, name)).passport
            if (
                token
                and run(Evaluate(run(StartSession(token)).session.id, ToolCall("Read", {"file_path": target}))).permits
            ):
                self.hold(told, target, str(narrowed.cwd or parent.cwd), name)

    def disturb(self) -> None:
        """Something happens to the folders."""
        one, other = (self.root / name for name in self.chance.sample(NAMES, 2))
        with suppress(OSError):
            match self.chance.randrange(3):
                case 0:
                    one.rename(self.root / "elsewhere")
                    other.rename(one)
                case 1:
                    one.rename(self.root / f"moved{next(self.world.count)}")
                    one.symlink_to(self.chance.choice(["/", "..", str(other)]))
                case _:
                    shutil.rmtree(one)

    def forget(self) -> None:
        """The Hub is started anew."""
        self.world.forget()
        if self.chance.random() < 0.02:
            self.world.stop()
            self.world.start()


# How often each happens.
WEIGHTS: Final = {
    Sequence.start: 3, Sequence.end: 3, Sequence.call: 14, Sequence.outcome: 1, Sequence.end_agent: 1,
    Sequence.delegate: 1, Sequence.disturb: 2, Sequence.forget: 1,
}  # fmt: skip


@contextmanager
def a_world(place: Path) -> Iterator[World]:
    world = World(place)
    try:
        yield world
    finally:
        world.stop()
        world.loop.run_until_complete(world.loop.shutdown_default_executor())
        world.loop.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_no_sequence_of_events_widens_or_refills_a_session(part: int, tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        for seed in range(part, SEQUENCES, PARTS):
            try:
                Sequence(world, random.Random(seed)).play()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
        # Both happen often, or nothing was tried.
        assert min(world.permitted, world.denied) > SEQUENCES // PARTS // 4, (world.permitted, world.denied)
