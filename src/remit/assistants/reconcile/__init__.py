"""Compares the transcripts of an assistant with the receipts in the ledger."""
