"""Sources of images: one file for each format of raw data."""
