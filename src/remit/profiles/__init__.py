"""Profiles: Markdown files that say what an assistant may do, and their compilation to missions."""
