"""A module's layers and groups, cutting channels out, and walking its feature maps."""
