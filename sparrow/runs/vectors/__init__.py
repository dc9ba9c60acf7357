"""The vectors of a trained model: rows of tables, towers, the nearest ones, recommendations."""
