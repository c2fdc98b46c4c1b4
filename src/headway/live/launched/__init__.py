"""Programs that a launcher starts, watches, restarts with another share and ends."""
