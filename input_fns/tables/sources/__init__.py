"""Sources of ratings and click logs."""
