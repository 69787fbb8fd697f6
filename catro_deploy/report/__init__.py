"""Reports of a run, for people and programs: JSON, Markdown, and one HTML page with figures."""
