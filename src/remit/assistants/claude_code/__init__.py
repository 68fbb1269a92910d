"""Claude Code: hook adapter, installation planner and transcript reader."""
