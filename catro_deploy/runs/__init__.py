"""Run folders: their files, stages and plans, and finding them below a folder."""
