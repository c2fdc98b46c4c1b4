"""What a program and the daemon share: messages, pages, and where they are found."""
