"""What the services share: one strict HTTP server, its guards, and what it tells those who run it."""
