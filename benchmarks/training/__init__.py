"""Speed of fine-tuning."""
