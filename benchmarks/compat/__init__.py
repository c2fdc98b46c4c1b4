"""Programs from Debian with and without Headway."""
