"""The filter language, and one table of fields for each of its uses: queue, history and nodes."""
