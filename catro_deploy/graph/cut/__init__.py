"""Removing channels from modules."""
