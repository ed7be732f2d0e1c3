"""Plans of moves on decayed states, beside what no rearrangement could do better."""
