"""opencode: hook adapter, installation planner."""
