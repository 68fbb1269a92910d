"""Checks of `remit doctor` on the protection of an assistant."""
