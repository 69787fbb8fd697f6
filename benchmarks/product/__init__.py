"""Time and memory that the product takes, and its commands on a GPU machine."""
