"""How fast fine-tuning is."""
