"""The governance proxy: its routes, and its TLS."""
