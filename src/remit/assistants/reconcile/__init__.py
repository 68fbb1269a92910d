"""Comparing the transcripts of an assistant with the receipts."""
