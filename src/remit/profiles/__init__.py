"""Profiles: what an assistant may do, written by people in Markdown, and compiled to a mission."""
