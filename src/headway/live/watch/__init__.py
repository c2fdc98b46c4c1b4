"""What people watch: statistics, explanations, metrics, recordings."""
