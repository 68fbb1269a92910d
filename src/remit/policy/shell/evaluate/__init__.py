"""Evaluates a syntax tree without running it: expansion, builtins, control flow and recorded effects."""
