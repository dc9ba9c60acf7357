"""Models whose vectors or codes find items: towers, histories, and semantic ids."""
