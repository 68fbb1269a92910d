"""Where evidence is kept: the ledger, its keys, and what is known of it outside of it."""
