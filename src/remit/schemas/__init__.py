"""What travels between clients and services: the same types check what comes in, and describe it in the API page."""
