"""Transcripts: what coding assistants write down of their own calls, read as untrusted text."""
