"""What `remit protect` says in the end: what holds now, what does not, and what to do next."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from remit.assistants.install.install import Undone
from remit.assistants.install.plan import Level, Plan
from remit.assistants.records import OnTamper, Protection
from remit.claims.mission import EVERYTHING
from remit.cli.render import Screen, note, show_data, show_facts, shown

__all__ = ["Shown", "show_protected", "show_undone"]

_MARKS: Final = {
    "protected": ("+", "green"),
    "not protected": ("-", "yellow"),
    "next": (">", "cyan"),
    "files": ("-", "dim"),
}
_WHERE: Final[dict[Level, str]] = {
    "local": "your own, in this folder",
    "project": "shared with everyone who works in this folder",
    "user": "yours, in every folder",
    "managed": "for everyone on this machine",
}
_TAMPERING: Final[dict[OnTamper, str]] = {
    "end": "if settings cannot be kept in force, its sessions end",
    "stop": "if settings cannot be kept in force, its sessions end and its processes are stopped",
}


class Shown(NamedTuple):
    """A protection as it is told."""

    title: str
    protection: Protection
    plan: Plan
    from_template: bool
    hub_runs: bool
    # Sessions that ran under another mission.
    ended: int = 0


def show_protected(told: Shown, *, as_json: bool) -> None:
    """Tell what is protected now."""
    if as_json:
        return show_data(_document(told))
    for warning in told.plan.warnings:
        note(f"careful: {warning}")
    if told.ended:
        note(f"sessions ended, because they ran under another mission: {told.ended}; their next call begins a new one")
    where = told.protection.folder or _WHERE[told.protection.level]
    show_facts(_facts(told), mark=f"{told.title} is protected: {where}", style="bold green")
    _show_list("protected", told.plan.protected)
    _show_list("not protected", told.plan.not_protected)
    return _show_list("next", _steps(told))


def show_undone(title: str, protection: Protection, undone: Sequence[Undone], *, as_json: bool) -> None:
    """Tell what was undone."""
    if as_json:
        files = [one._asdict() for one in undone]
        return show_data({"ok": True, "protection": protection.id, "undone": True, "files": files})
    show_facts(
        {}, mark=f"{title} is no longer protected: {protection.folder or _WHERE[protection.level]}", style="bold"
    )
    return _show_list("files", [f"{one.path}: {one.what}" for one in undone])


def _facts(told: Shown) -> dict[str, str]:
    protection, mission = told.protection, told.protection.mission
    source = f"{protection.profile} (there is no profile here: remit profile init makes one)"
    asks = {"ask": "it asks you as usual about what is permitted", "allow": "what is permitted, it need not ask you"}
    hours = f"{mission['max_duration_s'] / 3600:g} hours"
    return {
        "profile": source if told.from_template else protection.profile,
        "mission": mission["mission"],
        **_reach(mission["resource_scope"]),
        "mode": f"{protection.mode}: {asks[protection.mode]}",
        "passport": f"each session gets its own: at most {mission['max_tool_calls']} calls in {hours}",
        "settings": ", ".join(one.path for one in protection.files) + f" ({_WHERE[protection.level]})",
        "tampering": _TAMPERING[protection.on_tamper],
        "hub": protection.hub_url + ("" if told.hub_runs else " (not running: remit up --background)"),
    }


def _reach(scope: Sequence[str]) -> dict[str, str]:
    """Return where it may go, every entry of it: a profile that came with the folder must not hide one among others."""
    if EVERYTHING in scope:
        return {"places": "every file", "hosts": "every host"}
    places = ["the folder that it is started in" if entry == "." else entry for entry in scope if "://" not in entry]
    hosts = [entry for entry in scope if "://" in entry]
    return {"places": ", ".join(places) or "none", "hosts": ", ".join(hosts) or "none"}


def _steps(told: Shown) -> list[str]:
    name = told.protection.assistant
    again = "" if told.protection.level == "local" else f" --settings {told.protection.level}"
    start = [] if told.hub_runs else ["remit up --background, because nothing runs without the Hub"]
    return [
        *told.plan.steps,
        *start,
        f"remit doctor {name} tries whether a forbidden call is refused",
        "remit open shows every call and its receipt",
        f"remit protect {name}{again} --undo takes it back",
    ]


def _show_list(title: str, sentences: Iterable[str]) -> None:
    screen = Screen(highlight=False)
    mark, style = _MARKS[title]
    screen.print(Text(f"\n{title.capitalize()}", "bold"), soft_wrap=True)
    for sentence in sentences:
        screen.print(Text.assemble((f"  {mark} ", style), shown(sentence)), soft_wrap=True)


def _document(told: Shown) -> dict[str, object]:
    protection, plan = told.protection, told.plan
    return {
        "ok": True,
        "protection": protection.id,
        "assistant": protection.assistant,
        "version": protection.version,
        "level": protection.level,
        "folder": protection.folder,
        "form": protection.form,
        "mode": protection.mode,
        "profile": protection.profile,
        "mission": protection.mission,
        "on_tamper": protection.on_tamper,
        "ended_sessions": told.ended,
        "settings": [one.path for one in protection.files],
        "guards": list(protection.guards),
        "hub": {"url": protection.hub_url, "running": told.hub_runs},
        "protected": list(plan.protected),
        "not_protected": list(plan.not_protected),
        "steps": _steps(told),
        "warnings": list(plan.warnings),
    }
