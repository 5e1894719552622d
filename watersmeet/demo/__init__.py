"""`watersmeet demo`: two generated streams, joined as they arrive, and every result checked. On Spark, or embedded."""
