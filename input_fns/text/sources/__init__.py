"""Sources of text."""
