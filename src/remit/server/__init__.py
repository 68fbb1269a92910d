"""The HTTP server that the services share: connections, authorization, limits and telemetry."""
