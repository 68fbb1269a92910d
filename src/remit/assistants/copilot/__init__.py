"""Copilot CLI: hook adapter, installation planner."""
