"""The settings monitor of the Hub."""
