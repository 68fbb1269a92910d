"""Builds the policy engines that judge calls and events, and the `Means` of use cases with them."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from remit.assistants.records import Protections
from remit.claims.mission import EVERYTHING, Mission
from remit.governor.clock import Clock, SystemClock
from remit.governor.handshake import Judging
from remit.governor.means import Keys, Means
from remit.ledger.home import Home
from remit.ledger.port import Reader
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import DEADLINE_S, judge
from remit.policy.engines import Engine, Standing, Watched
from remit.policy.files import Files, SeenFiles, load_policies
from remit.policy.guard import GuardEngine, Own
from remit.policy.native import NativeEngine
from remit.policy.observation import ObservationEngine

__all__ = ["judging_of", "means_for", "means_with", "own_process"]


def own_process() -> Own:
    """Return the process ids and the command line of this process, which no call may kill."""
    return Own(frozenset((os.getpid(), os.getppid(), os.getpgrp())) - {0, 1}, " ".join(sys.orig_argv))


def judging_of(user_home: str | None, policies: str | None) -> Judging:
    """Return the settings for judging; `policies` is a file or folder of Cedar policies."""
    numbers, line = own_process()
    text = None if policies is None else load_policies(policies)
    if text is not None:
        _cedar_engine(text)  # so that errors in the policies are raised before anything is opened
    return Judging(user_home, text, numbers, line)


def _cedar_engine(policies: str) -> Engine:
    from remit.policy.cedar import CedarEngine  # noqa: PLC0415 - slow to import, and most have no policies

    return CedarEngine(policies)


def means_for(
    judging: Judging, home: Home, keys: Keys, reader: Reader, *, beside: Callable[[], Sequence[Own]] = tuple
) -> Means:
    """Return the means for these settings; `beside` returns further processes that no call may kill."""
    further = [] if judging.policies is None else [Watched(_cedar_engine(judging.policies), DEADLINE_S)]
    protections = Protections(home)
    own = Own(judging.numbers, judging.line)
    guard = GuardEngine(
        protections.guarded, (home.path,), lambda: (own, *beside()), protections.with_token, time.monotonic
    )
    files = SeenFiles(judging.home)
    return means_with(reader, keys, files, SystemClock(), judging=(guard, *further), observing=further)


def means_with(
    reader: Reader, keys: Keys, files: Files, clock: Clock, *, judging: Sequence[Engine], observing: Sequence[Engine]
) -> Means:
    """Return the means with engines besides that of the passport: `judging` for calls, `observing` for events.

    The guard of Remit's own files is not among `observing`: events also report what users do themselves.
    """
    native = NativeEngine()
    engines = (native, *judging)
    _warm_up(engines, files)
    return Means(
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
    standing = Standing("remit", Budget(1, 1))
    for call in _FIRST_CALLS:
        judge(call, mission, standing, engines=engines, files=files, clock=time.perf_counter)
