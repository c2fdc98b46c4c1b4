"""What happened, from events alone: records, history, checker, replay, totals."""
