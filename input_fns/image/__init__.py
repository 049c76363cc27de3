"""Images, and their boxes and masks."""
