"""Real time and real processes: the daemon, the launcher, and what they share with programs."""
