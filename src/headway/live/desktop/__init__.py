"""Windows: the foreground, window servers and their CPU priority."""
