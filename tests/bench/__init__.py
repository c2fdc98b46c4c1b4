"""What tests share: programs played by a test, daemons, and runs to look at."""
