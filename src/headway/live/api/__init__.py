"""What a program, or a command, calls to talk to the daemon."""
