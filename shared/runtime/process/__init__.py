"""The life of a process: settings, start, signals, health, exit."""
