"""Reads the text of a script into a syntax tree."""
