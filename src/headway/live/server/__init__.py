"""The daemon: one loop over sockets, timers and deaths, and its control socket."""
