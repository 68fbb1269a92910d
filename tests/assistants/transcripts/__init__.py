"""Transcripts of assistants: what they tell of calls, whatever else is in them."""
