"""What a run recorded, for people and programs: JSON, Markdown, and one HTML page with pictures."""
