"""The settings monitor of the Hub: restores the settings of protections, and ends sessions after tampering."""
