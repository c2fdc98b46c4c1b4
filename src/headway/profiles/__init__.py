"""Device profiles that come with Headway: one TOML file for each kind of GPU."""
