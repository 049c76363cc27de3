"""SavedModel export: signatures, model card, warm-up requests, export check."""
