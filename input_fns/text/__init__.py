"""Text as subwords or WordPiece ids."""
