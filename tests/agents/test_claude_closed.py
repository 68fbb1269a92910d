"""Whenever Remit cannot be asked, real Claude Code runs nothing, whatever was pre-approved."""

import socket

import pytest

from remit.config import rotate_token
from remit.ledger.home import open_home
from tests.agents.claude import bash, note, subagent, write
from tests.agents.governed import Governed, home_of
from tests.agents.impostors import IMPOSTORS, UNTOLD, listening
from tests.agents.plays import few, play
from tests.agents.script import Do, Script
from tests.hub.service import running


def test_no_calls_run_once_the_hub_is_gone(world: Governed) -> None:
    world.protect()
    project = world.place.project
    script = Script(
        turns=[
            [bash("echo 1 > before")],
            [Do(world.stop), bash("echo 1 > shell"), write(project / "file"), note(project / "note")],
            [subagent("PART: act too")],
        ],
        threads={"PART:": [[bash("echo 1 > part")]]},
    )
    assert play(world, script=script).made == {"project/before"}


@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_no_calls_run_when_something_else_answers_in_the_place_of_the_hub(new_world: Governed, impostor: str) -> None:
    new_world.protect()
    new_world.stop()
    with listening(new_world.hub.port, IMPOSTORS[impostor]):
        assert play(new_world, script=few(new_world.place)).made == set()


@pytest.mark.parametrize("impostor", UNTOLD)
def test_a_hook_tells_that_it_is_not_the_hub_that_answers(world: Governed, impostor: str) -> None:
    world.protect()
    world.stop()
    with listening(world.hub.port, UNTOLD[impostor]):
        assert play(world, script=few(world.place)).made == set()


def test_no_calls_run_when_the_hub_does_not_answer_in_time(world: Governed) -> None:
    world.protect()
    world.stop()
    world.hurry()
    with socket.create_server(("127.0.0.1", world.hub.port)):
        assert play(world, script=Script([[bash("echo 1 > shell")]])).made == set()


def test_no_calls_run_when_the_hook_shows_a_token_that_is_not_the_hubs(world: Governed) -> None:
    world.protect()
    world.stop()
    with open_home(home_of(world.place)) as home:
        rotate_token(home, "hub")  # the command would give the new one to the hooks as well
    with running(home_of(world.place), "--port", str(world.hub.port)):
        assert play(world, script=few(world.place)).made == set()


def test_no_calls_run_while_the_kill_switch_is_on(world: Governed) -> None:
    world.protect()
    world.told("kill-switch", "on")
    assert play(world, script=few(world.place)).made == set()


def test_no_calls_run_once_the_home_is_gone(world: Governed) -> None:
    world.protect()
    home_of(world.place).rename(world.place.root / "elsewhere")
    assert play(world, script=few(world.place)).made == set()
