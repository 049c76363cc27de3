"""Ratings and click logs."""
