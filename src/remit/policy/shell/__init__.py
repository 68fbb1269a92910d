"""What a shell command would do, without running it."""
