"""Builds the policy engines that judge calls and events, and the `Context` of use cases with them."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from remit.assistants.records import Protections
from remit.claims.mission import EVERYTHING, Mission
from remit.governor.clock import Clock, SystemClock
from remit.governor.context import Context, Keys
from remit.governor.handshake import PolicySettings
from remit.ledger.home import Home
from remit.ledger.store import LedgerReader
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import DEADLINE_S, judge
from remit.policy.engines import Engine, SessionStatus, TimedEngine
from remit.policy.files import Files, LocalFiles, load_policies
from remit.policy.guard import GuardEngine, OwnProcess
from remit.policy.native import NativeEngine
from remit.policy.observation import ObservationEngine


def own_process() -> OwnProcess:
    """Return the process ids and the command line of this process, which no call may kill."""
    return OwnProcess(frozenset((os.getpid(), os.getppid(), os.getpgrp())) - {0, 1}, " ".join(sys.orig_argv))


def load_policy_settings(user_home: str | None, policies: str | None) -> PolicySettings:
    """Return the settings for judging; `policies` is a file or folder of Cedar policies."""
    numbers, line = own_process()
    text = None if policies is None else load_policies(policies)
    if text is not None:
        _cedar_engine(text)  # so that errors in the policies are raised before anything is opened
    return PolicySettings(user_home, text, numbers, line)


def _cedar_engine(policies: str) -> Engine:
    from remit.policy.cedar import CedarEngine  # noqa: PLC0415 - slow to import, and most have no policies

    return CedarEngine(policies)


def context_for(
    judging: PolicySettings,
    home: Home,
    keys: Keys,
    reader: LedgerReader,
    *,
    beside: Callable[[], Sequence[OwnProcess]] = tuple,
) -> Context:
    """Return the context for these settings; `beside` returns further processes that no call may kill."""
    further = [] if judging.policies is None else [TimedEngine(_cedar_engine(judging.policies), DEADLINE_S)]
    protections = Protections(home)
    own = OwnProcess(judging.numbers, judging.line)
    guard = GuardEngine(
        protections.guarded, (home.path,), lambda: (own, *beside()), protections.with_token, time.monotonic
    )
    files = LocalFiles(judging.home)
    return context_with(reader, keys, files, SystemClock(), judging=(guard, *further), observing=further)


def context_with(
    reader: LedgerReader,
    keys: Keys,
    files: Files,
    clock: Clock,
    *,
    judging: Sequence[Engine],
    observing: Sequence[Engine],
) -> Context:
    """Return the context with engines besides that of the passport: `judging` for calls, `observing` for events.

    The guard of Remit's own files is not among `observing`: events also report what users do themselves.
    """
    native = NativeEngine()
    engines = (native, *judging)
    _warm_up(engines, files)
    return Context(
        keys=keys,
        engines=engines,
        observers=(ObservationEngine(files.home), native, *observing),
        files=files,
        clock=clock,
        stopwatch=time.perf_counter,
        entropy=secrets.token_bytes,
        reader=reader,
    )


_FIRST_CALLS: Final = (ToolCall("Read", {"file_path": "/a"}), ToolCall("Bash", {"command": "cat a | wc -l"}))


def _warm_up(engines: Sequence[Engine], files: Files) -> None:
    """Judge two made-up calls, which loads the tables of tools and programs."""
    mission = Mission(agent_id="remit", mission="warm up", allowed_tools=("*",), resource_scope=(EVERYTHING,), cwd="/")
    standing = SessionStatus("remit", Budget(1, 1))
    for call in _FIRST_CALLS:
        judge(call, mission, standing, engines=engines, files=files, clock=time.perf_counter)
