"""The core's eyes and hands: watches in, calls out. Translates and decides nothing."""
