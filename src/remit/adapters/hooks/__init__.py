"""Hooks of coding assistants: what they say, in each one's dialect, and what they are told."""
