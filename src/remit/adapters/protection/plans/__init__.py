"""Plans: what protects each assistant, one file for each."""
