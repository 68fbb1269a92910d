"""The dashboard: pages that the Hub renders itself, without scripts and without anything from elsewhere."""
