"""The templates of profiles, one file each."""

from importlib.resources import files as package_files
from typing import Final

from remit.errors import FieldInvalid, quote

DEFAULT_TEMPLATE: Final = "safe-coding"
TEMPLATES: Final = ("read-only", "safe-coding", "locked-down")


def template(name: str) -> str:
    """Return the text of a template."""
    if name not in TEMPLATES:
        raise FieldInvalid(f"{quote(name)} is not one of {', '.join(TEMPLATES)}", place="template")
    return package_files("remit.profiles").joinpath("templates", f"{name}.md").read_text(encoding="utf-8")
