"""Writing the settings that put an assistant under governance, and taking them back."""
