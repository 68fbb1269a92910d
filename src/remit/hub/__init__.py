"""The Personal Hub: takes what local adapters report, keeps it as evidence, and shows it to people."""
