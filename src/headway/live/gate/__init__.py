"""Who passes the gate and for how long: channels, leases, turns and what they are charged."""
