"""Who brings calls and evidence: coding assistants, by their hooks."""
