"""Gemini CLI: hook adapter, installation planner."""
