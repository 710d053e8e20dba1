"""Deaths: at every crash point, by real signals, at every sync."""
