"""Codex CLI: hook adapter, installation planner and transcript reader."""
