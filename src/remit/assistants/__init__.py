"""Coding assistants under governance: one package for each, and what they share."""
