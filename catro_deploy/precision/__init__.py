"""Networks in fewer bits: the graphs that runtimes are fast with, and which layers may not lose their bits."""
