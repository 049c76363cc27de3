"""Utilities that every package uses: atomic files, locks, errors, flag parsing."""
