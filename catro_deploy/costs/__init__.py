"""What a network costs by the widths of its groups."""
