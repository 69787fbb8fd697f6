"""Run folders: their files and stages, their plans, and the folders below a folder."""
