"""Protections of coding assistants: what is written into their settings, kept in the home, and taken back."""
