"""Taking channels out of modules."""
