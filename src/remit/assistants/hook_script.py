"""The text of the hook command, to be kept where nothing that is governed can change it."""

from importlib.resources import files as package_files

__all__ = ["script_text"]


def script_text(protection: str = "") -> str:
    """Return the text of `hook_command.py`, with the protection that it was written for named at its end."""
    text = package_files("remit.assistants").joinpath("hook_command.py").read_text(encoding="utf-8")
    return f"{text}\n# {protection}\n" if protection else text
